//! The confusion matrix of a classifier: a square for each pair of classes, darker for more samples.

use super::svg::{Svg, shorten};

/// Side of a square in pixels.
const SIDE: f64 = 44.0;
/// Top of the first row of squares.
const TOP: f64 = 100.0;
/// The longest name that is written in full, in characters.
const MAX_NAME: usize = 14;
/// Classes of a matrix whose squares have numbers and names.
const MAX_LABELLED: usize = 40;

/// Draws a confusion matrix as SVG. A row has the samples of one class, a column those with one prediction.
#[must_use]
pub fn confusion_matrix(title: &str, classes: &[&str], confusion: &[Vec<usize>]) -> String {
    let is_labelled = classes.len() <= MAX_LABELLED;
    let side = if is_labelled { SIDE } else { SIDE * MAX_LABELLED as f64 / classes.len() as f64 };
    let names: Vec<String> = classes.iter().map(|name| shorten(name, MAX_NAME)).collect();
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let left = 40.0 + 8.0 * longest as f64;
    let size = side * classes.len() as f64;
    let mut svg = Svg::new((left + size + 40.0).max(360.0), TOP + size + 40.0, title);
    let total: usize = confusion.iter().flatten().sum();
    let right: usize = confusion.iter().enumerate().filter_map(|(class, row)| row.get(class)).sum();
    let percent = 100.0 * right as f64 / total.max(1) as f64;
    svg.text(
        "muted",
        24.0,
        54.0,
        &format!("{right} of {total} samples correct ({percent:.2} %); rows: class, columns: prediction"),
    );
    for (class, (name, row)) in names.iter().zip(confusion).enumerate() {
        let y = TOP + side * class as f64;
        if is_labelled {
            svg.text("end", left - 10.0, y + side / 2.0 + 4.0, name);
            svg.text("muted middle", left + side * (class as f64 + 0.5), TOP - 10.0, &shorten(name, 5));
        }
        let samples: usize = row.iter().sum();
        for (column, &count) in row.iter().enumerate().filter(|(_, count)| **count > 0) {
            let x = left + side * column as f64;
            let fill = if column == class { "soft-fill" } else { "hard-fill" };
            let share = count as f64 / samples.max(1) as f64;
            // The area of the square is the share of the samples of the class.
            let inner = (side - 4.0) * share.sqrt().max(0.1);
            let margin = (side - inner) / 2.0;
            svg.rect(fill, (x + margin, y + margin), (inner, inner), 2.0);
            if is_labelled {
                svg.text("middle halo", x + side / 2.0, y + side / 2.0 + 4.0, &count.to_string());
            }
        }
    }
    svg.finish()
}

#[cfg(test)]
mod tests {
    use super::super::svg::assert_well_formed;
    use super::*;

    #[test]
    fn every_count_and_class_is_written() {
        let text = confusion_matrix("iris", &["setosa", "a < b"], &[vec![7, 1], vec![0, 12]]);
        assert_well_formed(&text);
        for label in ["setosa", "a &lt; b", ">7<", ">1<", ">12<", "19 of 20 samples correct (95.00 %)"] {
            assert!(text.contains(label), "{label} is missing");
        }
        assert!(!text.contains(">0<"));
    }

    #[test]
    fn no_samples_and_many_classes_are_well_formed() {
        assert_well_formed(&confusion_matrix("", &[], &[]));
        let names = vec!["class"; 100];
        assert_well_formed(&confusion_matrix("x", &names, &vec![vec![3; 100]; 100]));
    }
}
