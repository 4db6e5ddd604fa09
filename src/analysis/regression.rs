//! Linear least squares by Gram-Schmidt orthogonalization.
//!
//! Knows columns of numbers. Columns that depend linearly on those before them are left out, so that every design has a solution.

/// A column is linearly dependent if less than this share of its length is left after projections on the columns before it are subtracted.
const FOLLOWS: f64 = 1e-9;

/// A fitted linear model.
#[derive(Clone, Debug)]
pub(super) struct Fit {
    /// The coefficient of each column; 0 for linearly dependent ones.
    pub(super) coefficients: Vec<f64>,
    /// The sum of the squared residuals.
    pub(super) residual: f64,
    /// The number of linearly independent columns.
    pub(super) rank: usize,
    kept: Vec<usize>,
    /// The linearly dependent columns, each with its projections on the orthonormal columns that there were before it.
    following: Vec<(usize, Vec<f64>)>,
    /// The upper triangle that turns orthonormal columns into the kept ones, by column of the kept ones.
    upper: Vec<Vec<f64>>,
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Fits `y` by the columns, each as long as `y`.
pub(super) fn fit(columns: &[Vec<f64>], y: &[f64]) -> Fit {
    let mut orthonormal: Vec<Vec<f64>> = Vec::new();
    let (mut kept, mut following, mut projections) = (Vec::new(), Vec::new(), Vec::new());
    let mut triangle: Vec<Vec<f64>> = Vec::new();
    for (at, column) in columns.iter().enumerate() {
        let mut rest = column.clone();
        let mut shares = vec![0.0; orthonormal.len()];
        // Twice, because rounding leaves small parts of the earlier columns the first time.
        for _ in 0..2 {
            for (share, unit) in shares.iter_mut().zip(&orthonormal) {
                let part = dot(&rest, unit);
                *share += part;
                rest.iter_mut().zip(unit).for_each(|(rest, unit)| *rest -= part * unit);
            }
        }
        let (before, left) = (dot(column, column).sqrt(), dot(&rest, &rest).sqrt());
        if left <= FOLLOWS * before || left == 0.0 {
            following.push((at, shares));
            continue;
        }
        rest.iter_mut().for_each(|value| *value /= left);
        shares.push(left);
        triangle.push(shares);
        orthonormal.push(rest);
        kept.push(at);
    }
    let mut rest = y.to_vec();
    for unit in &orthonormal {
        let part = dot(&rest, unit);
        rest.iter_mut().zip(unit).for_each(|(rest, unit)| *rest -= part * unit);
        projections.push(part);
    }
    let mut coefficients = vec![0.0; columns.len()];
    kept.iter().zip(solved(&triangle, &projections)).for_each(|(at, value)| coefficients[*at] = value);
    Fit { coefficients, residual: dot(&rest, &rest), rank: kept.len(), kept, following, upper: triangle }
}

/// Returns the coefficients of the first columns of a triangle that give these projections.
fn solved(triangle: &[Vec<f64>], projections: &[f64]) -> Vec<f64> {
    let mut solved = vec![0.0; projections.len()];
    for row in (0..projections.len()).rev() {
        let known: f64 = (row + 1..projections.len()).map(|column| triangle[column][row] * solved[column]).sum();
        solved[row] = (projections[row] - known) / triangle[row][row];
    }
    solved
}

/// The number of a design's rows that are reduced at once.
pub(super) const BLOCK: usize = 512;

/// Few rows in place of many: every fit by some of the columns has the same coefficients, residual and rank as with all rows.
///
/// They are the triangle of a QR decomposition by Householder reflections, block by block, so that memory does not grow with the rows.
#[derive(Clone, Debug)]
pub(super) struct Reduced {
    /// The columns, each with as many rows as there are columns.
    columns: Vec<Vec<f64>>,
}

impl Reduced {
    /// Creates a reduction of this many columns, without rows.
    pub(super) fn new(columns: usize) -> Self {
        Self { columns: vec![vec![0.0; columns]; columns] }
    }

    /// Adds rows, given by column.
    pub(super) fn push(&mut self, mut block: Vec<Vec<f64>>) {
        let count = self.columns.len();
        for at in 0..count {
            let (done, rest) = block.split_at_mut(at + 1);
            let Some(below) = done.last_mut() else { continue };
            let squares = dot(below, below);
            if squares == 0.0 {
                continue;
            }
            // The reflection that sets all entries of this column below the diagonal to zero.
            let corner = self.columns[at][at];
            let length = (corner * corner + squares).sqrt().copysign(-corner);
            let first = corner - length;
            let scale = 2.0 / (first * first + squares);
            self.columns[at][at] = length;
            for (offset, column) in rest.iter_mut().enumerate() {
                let above = &mut self.columns[at + 1 + offset][at];
                let part = scale * (first * *above + dot(below, column));
                *above -= part * first;
                column.iter_mut().zip(below.iter()).for_each(|(value, below)| *value -= part * below);
            }
        }
    }

    /// The columns of the reduced rows.
    pub(super) fn columns(self) -> Vec<Vec<f64>> {
        self.columns
    }
}

impl Fit {
    /// The weighted sum of the coefficients.
    pub(super) fn contrast(&self, weights: &[f64]) -> f64 {
        dot(&self.coefficients, weights)
    }

    /// Whether the rows determine the weighted sum: the weight of a dependent column has to follow from the weights of
    /// the columns on which it depends.
    pub(super) fn is_estimable(&self, weights: &[f64]) -> bool {
        self.following.iter().all(|(at, projections)| {
            let others = solved(&self.upper, projections);
            let expected: f64 = self.kept.iter().zip(&others).map(|(kept, other)| weights[*kept] * other).sum();
            (weights[*at] - expected).abs() < 1e-6
        })
    }

    /// The standard error of the weighted sum, in units of the residuals' standard deviation.
    pub(super) fn error(&self, weights: &[f64]) -> f64 {
        let mut solved: Vec<f64> = Vec::with_capacity(self.rank);
        for (row, at) in self.kept.iter().enumerate() {
            let known: f64 = solved.iter().zip(&self.upper[row]).map(|(solved, upper)| solved * upper).sum();
            solved.push((weights[*at] - known) / self.upper[row][row]);
        }
        dot(&solved, &solved).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::resample::Random;

    #[test]
    fn a_fit_is_that_of_statsmodels() {
        // statsmodels 0.15.0: m = OLS(y, X).fit(); m.params, m.ssr, m.bse / sqrt(m.scale).
        let x = [1.0, 2.0, 3.0, 5.0, 8.0];
        let z = [2.0, 1.0, 4.0, 3.0, 7.0];
        let y = [3.1, 2.9, 6.2, 7.4, 13.0];
        let columns = [vec![1.0; 5], x.to_vec(), x.iter().map(|x| 2.0 * x - 1.0).collect(), z.to_vec()];
        let found = fit(&columns, &y);
        assert_eq!((found.rank, found.coefficients[2]), (3, 0.0));
        let expected = OLS;
        for (at, value) in [(0, expected[0]), (1, expected[1]), (3, expected[2])] {
            assert!((found.coefficients[at] - value).abs() < 1e-9, "{at}: {}", found.coefficients[at]);
        }
        assert!((found.residual - expected[3]).abs() < 1e-9, "{}", found.residual);
        let error = found.error(&[0.0, 1.0, 0.0, 0.0]);
        assert!((error - expected[4]).abs() < 1e-9, "{error}");
        assert!((found.contrast(&[0.0, 1.0, 0.0, 1.0]) - expected[1] - expected[2]).abs() < 1e-9);
    }

    #[test]
    fn reduced_rows_have_the_fits_of_all_rows() {
        let mut random = Random(3);
        let rows = 3 * BLOCK + 7;
        let of = |levels: f64, random: &mut Random| -> Vec<f64> {
            (0..rows).map(|_| (levels * random.uniform()).floor()).collect()
        };
        let (a, b) = (of(2.0, &mut random), of(3.0, &mut random));
        let y: Vec<f64> = a.iter().zip(&b).map(|(a, b)| 5.0 + 2.0 * a - b * b + 1e-3 * random.normal()).collect();
        let product: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a * b).collect();
        let twice: Vec<f64> = a.iter().map(|a| 2.0 * a + 1.0).collect();
        let all = [vec![1.0; rows], a, b, twice, product];
        let mut reduced = Reduced::new(all.len() + 1);
        for first in (0..rows).step_by(BLOCK) {
            let here = first..(first + BLOCK).min(rows);
            reduced.push(all.iter().chain([&y]).map(|column| column[here.clone()].to_vec()).collect());
        }
        let few = reduced.columns();
        for chosen in [&[0usize][..], &[0, 1], &[0, 2, 1], &[0, 1, 2, 3], &[0, 1, 2, 3, 4]] {
            let pick = |columns: &[Vec<f64>]| chosen.iter().map(|at| columns[*at].clone()).collect::<Vec<_>>();
            let (expected, found) = (fit(&pick(&all), &y), fit(&pick(&few), &few[all.len()]));
            assert_eq!(found.rank, expected.rank, "{chosen:?}");
            assert!((found.residual / expected.residual - 1.0).abs() < 1e-9, "{chosen:?}");
            for (a, b) in found.coefficients.iter().zip(&expected.coefficients) {
                assert!((a - b).abs() < 1e-9, "{chosen:?}: {a} {b}");
            }
            let mut weights = vec![0.0; chosen.len()];
            weights[chosen.len() / 2] = 1.0;
            assert!((found.error(&weights) / expected.error(&weights) - 1.0).abs() < 1e-9, "{chosen:?}");
        }
    }

    const OLS: [f64; 5] =
        [0.521164021164023, 0.884391534391534, 0.775925925925927, 0.0713756613756615, 0.374448448002713];
}
