//! The evaluation of a classifier as lines of text.

use std::fmt::Write as _;

use gatework_gates::classifier::evaluate::Evaluation;

/// Classes of the largest confusion matrix that is part of the table.
const MAX_CLASSES: usize = 20;

/// Returns precision and recall of every class as the lines of a table, with the confusion matrix if it is not too wide.
pub fn class_table(evaluation: &Evaluation) -> Vec<String> {
    let percent =
        |share: Option<f64>| share.map_or_else(|| "-".to_string(), |share| format!("{:.1} %", 100.0 * share));
    let has_matrix = evaluation.classes.len() <= MAX_CLASSES;
    let longest = evaluation.classes.iter().map(|class| class.name.chars().count()).max();
    let width = longest.unwrap_or(0).clamp(5, 24);
    let short = |name: &str, length: usize| name.chars().take(length).collect::<String>();
    let mut head = format!("{:<width$} {:>8} {:>9} {:>8}", "class", "samples", "precision", "recall");
    if has_matrix {
        head.push_str("   predicted as");
        for class in &evaluation.classes {
            let _ = write!(head, " {:>6}", short(&class.name, 6));
        }
    }
    let mut lines = vec![head];
    for (class, row) in evaluation.classes.iter().zip(&evaluation.confusion) {
        let mut line = format!(
            "{:<width$} {:>8} {:>9} {:>8}",
            short(&class.name, width),
            class.samples,
            percent(class.precision),
            percent(class.recall)
        );
        if has_matrix {
            line.push_str("               ");
            for count in row {
                let _ = write!(line, " {count:>6}");
            }
        }
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_scores_of_a_class_and_its_predictions() {
        let names = ["cat".to_string(), "elephant".to_string()];
        let expected = [
            "class     samples precision   recall   predicted as    cat elepha",
            "cat             2    66.7 %  100.0 %                     2      0",
            "elephant        2   100.0 %   50.0 %                     1      1",
        ];
        assert_eq!(class_table(&Evaluation::new(&names, &[0, 0, 1, 1], &[0, 0, 0, 1])), expected);
    }

    #[test]
    fn a_matrix_of_many_classes_is_left_out() {
        let names: Vec<String> = (0..=MAX_CLASSES).map(|class| class.to_string()).collect();
        let lines = class_table(&Evaluation::new(&names, &[0], &[1]));
        assert_eq!(lines[0], "class  samples precision   recall");
        assert!(lines.len() == names.len() + 1 && lines[1].len() == lines[0].len(), "{lines:#?}");
    }
}
