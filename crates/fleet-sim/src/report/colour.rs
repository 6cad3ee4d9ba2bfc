use baton_router::STRATEGIES;

/// Which of the page's colours a strategy has: each of the registry has its own, as far as there are colours.
pub(super) fn colour(strategy: &str) -> usize {
    STRATEGIES.iter().position(|kind| kind.name == strategy).unwrap_or_default() % COLOURS
}

/// Of the page.
const COLOURS: usize = 8;
