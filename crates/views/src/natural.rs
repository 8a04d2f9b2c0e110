//! Natural order of names: h2 before h10.

use std::cmp::Ordering;

/// Compares two names in natural order: runs of digits compare as numbers.
pub fn natural(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a, b);
    loop {
        let (x, y) = (piece(left), piece(right));
        if x.is_empty() || y.is_empty() {
            return x.len().cmp(&y.len()).then_with(|| a.cmp(b));
        }
        let order = match (number(x), number(y)) {
            (Some(x), Some(y)) => (x.len(), x).cmp(&(y.len(), y)),
            _ => x.cmp(y),
        };
        if order.is_ne() {
            return order;
        }
        (left, right) = (&left[x.len()..], &right[y.len()..]);
    }
}

/// Returns the longest prefix that consists only of digits or only of other characters.
fn piece(text: &str) -> &str {
    let digits = text.starts_with(|c: char| c.is_ascii_digit());
    let end = text.find(|c: char| c.is_ascii_digit() != digits).unwrap_or(text.len());
    &text[..end]
}

/// Returns the digits of a number without leading zeros, or `None` if `piece` is not a number.
fn number(piece: &str) -> Option<&str> {
    piece.starts_with(|c: char| c.is_ascii_digit()).then(|| piece.trim_start_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_count() {
        let mut names = ["h10", "h2", "a", "h1", "h02", "rack2-h1", "rack10-h1", "rack2-h11", "", "7", "h"];
        names.sort_by(|a, b| natural(a, b));
        assert_eq!(
            names,
            ["", "7", "a", "h", "h1", "h02", "h2", "h10", "rack2-h1", "rack2-h11", "rack10-h1"]
        );
        let long = ["9".repeat(40), "1".repeat(41)];
        assert_eq!(natural(&long[0], &long[1]), Ordering::Less);
        assert_eq!(natural("h2", "h2"), Ordering::Equal);
    }
}
