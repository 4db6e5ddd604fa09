//! The lines that differ between two texts.

/// The lines that differ between two texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangedLines {
    /// The number of changed lines: for each changed section, the longer of its two sides.
    pub count: usize,
    /// The changed lines of both texts in order, with `- ` before lines of the first and `+ ` before lines of the
    /// second.
    pub lines: Vec<String>,
}

/// Returns the lines that differ between two texts, or `None` if finding them would take too long.
pub fn changed_lines(a: &str, b: &str) -> Option<ChangedLines> {
    const MOST_WORK: usize = 25_000_000;
    let (a, b): (Vec<&str>, Vec<&str>) = (a.lines().collect(), b.lines().collect());
    let head = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
    let (a, b) = (&a[head..], &b[head..]);
    let tail = a.iter().rev().zip(b.iter().rev()).take_while(|(x, y)| x == y).count();
    let (a, b) = (&a[..a.len() - tail], &b[..b.len() - tail]);
    let width = b.len() + 1;
    if a.len().checked_mul(width).is_none_or(|work| work > MOST_WORK) {
        return None;
    }
    // The length of the longest common subsequence from each pair of lines on.
    let mut common = vec![0_u32; (a.len() + 1) * width];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            common[i * width + j] = match a[i] == b[j] {
                true => common[(i + 1) * width + j + 1] + 1,
                false => common[(i + 1) * width + j].max(common[i * width + j + 1]),
            };
        }
    }
    let (mut i, mut j, mut changed, mut stretch) = (0, 0, 0, (0_usize, 0_usize));
    let mut lines = Vec::new();
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i] == b[j] {
            changed += stretch.0.max(stretch.1);
            (stretch, i, j) = ((0, 0), i + 1, j + 1);
        } else if j == b.len() || i < a.len() && common[(i + 1) * width + j] >= common[i * width + j + 1] {
            lines.push(format!("- {}", a[i]));
            (stretch.0, i) = (stretch.0 + 1, i + 1);
        } else {
            lines.push(format!("+ {}", b[j]));
            (stretch.1, j) = (stretch.1 + 1, j + 1);
        }
    }
    Some(ChangedLines { count: changed + stretch.0.max(stretch.1), lines })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_changed_line_counts_once() {
        let found = |a, b| changed_lines(a, b).map(|found| (found.count, found.lines.join(" ")));
        assert_eq!(found("a\nb\nc\n", "a\nB\nc\n"), Some((1, "- b + B".to_owned())));
        assert_eq!(found("a\nb\nc\n", "A\nb\nC\nd\n"), Some((3, "- a + A - c + C + d".to_owned())));
        assert_eq!(found("a\nb\n", "a\nx\ny\nb\n"), Some((2, "+ x + y".to_owned())));
        assert_eq!(found("a\n", ""), Some((1, "- a".to_owned())));
        assert_eq!(found("same\n", "same\n"), Some((0, String::new())));
        let long = |word: &str| format!("{word}\n").repeat(6000);
        assert_eq!(changed_lines(&long("a"), &long("b")), None);
    }

    proptest! {
        #[test]
        fn only_equal_texts_have_no_changed_line(
            a in prop::collection::vec(0..4_u8, 0..12),
            b in prop::collection::vec(0..4_u8, 0..12),
        ) {
            let text = |lines: &[u8]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
            let found = changed_lines(&text(&a), &text(&b)).unwrap().count;
            prop_assert!(found <= a.len().max(b.len()) + a.len().min(b.len()));
            prop_assert_eq!(found == 0, a == b);
        }
    }
}
