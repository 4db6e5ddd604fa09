//! Sparklines: curves in one line of text.

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Values whose relative difference is less are drawn as equal; they are equal with four digits too.
const EQUAL: f64 = 1e-4;

/// Draws one character per value: the lowest block for the minimum, the full one for the maximum, a blank for none.
/// Equal values are drawn in the middle. `scale` sets minimum and maximum instead.
pub(super) fn sparkline(values: &[Option<f64>], scale: Option<(f64, f64)>) -> String {
    let finite = || values.iter().flatten().copied().filter(|value| value.is_finite());
    let own = || (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max));
    let (min, max) = scale.unwrap_or_else(own);
    let flat = max - min <= EQUAL * min.abs().max(max.abs());
    let block = |value: f64| {
        let border = |eighths: f64| min * (1.0 - eighths / 8.0) + max * (eighths / 8.0);
        let above = (1..8u8).filter(|eighths| value >= border(f64::from(*eighths))).count();
        if flat { BLOCKS[3] } else { BLOCKS[above] }
    };
    let shown = |value: &Option<f64>| value.filter(|value| value.is_finite()).map_or(' ', block);
    values.iter().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn gaps_are_blank_and_extremes_are_visible() {
        let values = [Some(1.0), None, Some(2.0), Some(8.0), Some(f64::NAN), Some(4.5)];
        assert_eq!(sparkline(&values, None), "▁ ▂█ ▅");
        assert_eq!(sparkline(&[Some(1.5), None, Some(1.5001)], None), "▄ ▄");
        assert_eq!(sparkline(&[Some(0.0), Some(0.0)], Some((0.0, 1.0))), "▁▁");
        assert_eq!(sparkline(&[], None), "");
    }

    proptest! {
        #[test]
        fn a_sparkline_has_one_character_per_value(values in prop::collection::vec(prop::option::of(prop::num::f64::ANY), 0..80)) {
            let line = sparkline(&values, None);
            prop_assert_eq!(line.chars().count(), values.len());
            for (shown, value) in line.chars().zip(&values) {
                prop_assert_eq!(shown == ' ', !value.is_some_and(f64::is_finite));
            }
        }

        #[test]
        fn ascending_values_give_ascending_blocks(mut values in prop::collection::vec(-1e300..1e300, 2..80)) {
            values.sort_by(f64::total_cmp);
            let (first, last) = (values[0], values[values.len() - 1]);
            let line: Vec<char> = sparkline(&values.into_iter().map(Some).collect::<Vec<_>>(), None).chars().collect();
            prop_assert!(line.is_sorted());
            let flat = last - first <= EQUAL * first.abs().max(last.abs());
            prop_assert!(flat || (line[0], line[line.len() - 1]) == ('▁', '█'));
        }
    }
}
