//! Stratified splits: every class has the same share in both parts, as far as its number of rows allows.

use gatework_train::random::{Purpose, Random};

use super::{DataError, Dataset};

/// Divides some rows of a data set: returns those that remain, and a `share` of them that is held back, both in the order of
/// the data set. The seed selects the rows. A class with a single row cannot be in both parts.
pub fn hold_back(
    data: &Dataset,
    rows: &[u32],
    share: f64,
    seed: u64,
    purpose: &str,
) -> Result<(Vec<u32>, Vec<u32>), DataError> {
    let mut by_class: Vec<Vec<u32>> = vec![Vec::new(); data.classes().len()];
    for &row in rows {
        by_class[data.labels()[row as usize] as usize].push(row);
    }
    let mut random = Random::new(seed, Purpose::Shuffle, u64::MAX);
    let (mut kept, mut held) = (Vec::new(), Vec::new());
    for (class, mut rows) in by_class.into_iter().enumerate() {
        if rows.len() == 1 {
            let name = &data.classes()[class];
            return Err(DataError::Unusable(format!(
                "class {name:?} has one row, which cannot be both in training and held back for {purpose}; \
                 remove it or add rows"
            )));
        }
        random.shuffle(&mut rows);
        let count = ((rows.len() as f64 * share).round() as usize).min(rows.len().saturating_sub(1));
        held.extend(rows.drain(..count));
        kept.extend(rows);
    }
    if held.is_empty() {
        let message =
            format!("{} rows are too few to hold back {share} of each class for {purpose}", rows.len());
        return Err(DataError::Unusable(message));
    }
    kept.sort_unstable();
    held.sort_unstable();
    Ok((kept, held))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(counts: &[usize]) -> Dataset {
        let labels: Vec<u32> = (0u32..).zip(counts).flat_map(|(class, &count)| vec![class; count]).collect();
        Dataset::new(1, vec![0.0; labels.len()], labels).unwrap()
    }

    #[test]
    fn every_class_has_its_share_and_no_row_is_lost() {
        let data = data(&[100, 10, 3]);
        let rows: Vec<u32> = (0..113).collect();
        let (kept, held) = hold_back(&data, &rows, 0.2, 1, "testing").unwrap();
        let mut all = [kept.clone(), held.clone()].concat();
        all.sort_unstable();
        assert_eq!(all, rows);
        let counts = |class: u32| held.iter().filter(|&&row| data.labels()[row as usize] == class).count();
        assert_eq!([counts(0), counts(1), counts(2)], [20, 2, 1]);
        assert_eq!(hold_back(&data, &rows, 0.2, 1, "testing").unwrap(), (kept, held.clone()));
        assert_ne!(hold_back(&data, &rows, 0.2, 2, "testing").unwrap().1, held);
    }

    #[test]
    fn a_class_with_one_row_is_named() {
        let message =
            hold_back(&data(&[5, 1]), &[0, 1, 2, 3, 4, 5], 0.2, 1, "testing").unwrap_err().to_string();
        assert!(message.starts_with("class \"1\" has one row"), "{message}");
    }
}
