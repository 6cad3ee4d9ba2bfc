//! Did you mean …?

/// The candidates closest to `word`, best first: none that differ by more than a third of it, or that are two edits
/// worse than the best.
pub(crate) fn near_matches<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let allowed = (word.chars().count() / 3).max(1);
    let mut near: Vec<_> = candidates
        .into_iter()
        .map(|candidate| (strsim::levenshtein(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .collect();
    near.sort_unstable();
    let best = near.first().map_or(0, |(distance, _)| *distance);
    near.retain(|(distance, _)| *distance <= best + 1);
    near.into_iter().map(|(_, candidate)| candidate).take(3).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_come_first() {
        let keys = ["router-host", "router-port", "threads"];
        assert_eq!(near_matches("rooter-port", keys), ["router-port"]);
        assert_eq!(near_matches("router-pots", keys), ["router-port", "router-host"]);
        assert_eq!(near_matches("colour", keys), [""; 0]);
    }
}
