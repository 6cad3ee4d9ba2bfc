//! Did you mean …?

/// The candidates closest to `word`, best first: none that differ by more than a third of it, or that are two edits
/// worse than the best.
pub(crate) fn near_matches<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let allowed = (word.chars().count() / 3).max(1);
    let mut near: Vec<_> = candidates
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .collect();
    near.sort_unstable();
    let best = near.first().map_or(0, |(distance, _)| *distance);
    near.retain(|(distance, _)| *distance <= best + 1);
    near.into_iter().map(|(_, candidate)| candidate).take(3).collect()
}

/// Single-character edits (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, a_char) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b_char) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(a_char != *b_char);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_edits() {
        for (a, b, edits) in [("", "abc", 3), ("abc", "abc", 0), ("kitten", "sitting", 3), ("port", "prot", 2)] {
            assert_eq!(distance(a, b), edits, "{a} {b}");
        }
    }

    #[test]
    fn the_nearest_come_first() {
        let keys = ["router-host", "router-port", "threads"];
        assert_eq!(near_matches("rooter-port", keys), ["router-port"]);
        assert_eq!(near_matches("router-pots", keys), ["router-port", "router-host"]);
        assert_eq!(near_matches("colour", keys), [""; 0]);
    }
}
