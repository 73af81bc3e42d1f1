//! The head of a classifier: classes, and the group of outputs that is the score of each.

use super::ClassifierError;
use serde::{Deserialize, Serialize};

/// The maximum number of classes.
pub const MAX_CLASSES: usize = 1 << 16;
/// The maximum offset of a class.
pub const MAX_OFFSET: u32 = 1 << 24;

/// A class and its group of outputs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// The name of the class.
    pub name: String,
    /// The number of outputs of the circuit in the group. The groups are contiguous, in the order of the classes.
    pub outputs: usize,
    /// A number that is added to the score: outputs that are always 1, which minimisation has removed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub offset: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(offset: &u32) -> bool {
    *offset == 0
}

/// The classes of a classifier, in the order of their groups of outputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    classes: Vec<Class>,
    temperature: f32,
}

impl Head {
    /// Creates a head. The temperature divides the scores in the softmax of the training loss; it does not change which
    /// class is predicted.
    pub fn new(classes: Vec<Class>, temperature: f32) -> Result<Head, ClassifierError> {
        if !(2..=MAX_CLASSES).contains(&classes.len()) {
            return Err(ClassifierError::Classes { classes: classes.len() });
        }
        if let Some(class) = classes.iter().position(|class| class.offset > MAX_OFFSET) {
            return Err(ClassifierError::Offset { class, offset: classes[class].offset });
        }
        if let Some(name) = super::duplicate(classes.iter().map(|class| class.name.as_str())) {
            return Err(ClassifierError::ClassName(name.into()));
        }
        if !(temperature.is_finite() && temperature > 0.0) {
            return Err(ClassifierError::Temperature(temperature));
        }
        Ok(Head { classes, temperature })
    }

    /// Creates a head that divides `outputs` outputs into equal groups.
    pub fn equal_groups(
        names: Vec<String>,
        outputs: usize,
        temperature: f32,
    ) -> Result<Head, ClassifierError> {
        let classes = names.len();
        if classes == 0 || outputs == 0 || !outputs.is_multiple_of(classes) {
            return Err(ClassifierError::Groups { outputs, classes });
        }
        let class = |name| Class { name, outputs: outputs / classes, offset: 0 };
        Head::new(names.into_iter().map(class).collect(), temperature)
    }

    /// Returns the classes.
    pub fn classes(&self) -> &[Class] {
        &self.classes
    }

    /// Returns the temperature of the softmax in training.
    pub fn temperature(&self) -> f32 {
        self.temperature
    }

    /// Returns the number of outputs of all groups.
    pub fn outputs(&self) -> usize {
        self.classes.iter().map(|class| class.outputs).fold(0, usize::saturating_add)
    }

    /// Returns the highest score that a class can have.
    pub fn max_score(&self) -> u32 {
        let score =
            |class: &Class| u32::try_from(class.outputs).unwrap_or(u32::MAX).saturating_add(class.offset);
        self.classes.iter().map(score).max().unwrap_or(0)
    }

    /// Returns the score of every class from the outputs of the circuit.
    pub(crate) fn scores(&self, mut outputs: &[bool]) -> Vec<u32> {
        let score = |class: &Class| {
            let group = outputs.split_off(..class.outputs).unwrap_or_default();
            class.offset + group.iter().map(|&bit| u32::from(bit)).sum::<u32>()
        };
        self.classes.iter().map(score).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|i| i.to_string()).collect()
    }

    #[test]
    fn faulty_heads_are_errors() {
        let error = |names, outputs| Head::equal_groups(names, outputs, 1.0).unwrap_err();
        assert_eq!(error(names(3), 10), ClassifierError::Groups { outputs: 10, classes: 3 });
        assert_eq!(error(names(3), 0), ClassifierError::Groups { outputs: 0, classes: 3 });
        assert_eq!(error(vec![], 3), ClassifierError::Groups { outputs: 3, classes: 0 });
        assert_eq!(error(names(1), 3), ClassifierError::Classes { classes: 1 });
        assert_eq!(
            error(names(1_000_000), 1_000_000).to_string(),
            "there are 1000000 classes, but a classifier has 2 to 65536"
        );
        assert_eq!(error(vec!["a".into(), "a".into()], 2), ClassifierError::ClassName("a".into()));
        for temperature in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            assert!(Head::equal_groups(names(2), 2, temperature).is_err());
        }
    }

    #[test]
    fn groups_may_differ_in_size_and_have_offsets() {
        let class = |name: &str, outputs, offset| Class { name: name.into(), outputs, offset };
        let head = Head::new(vec![class("a", 1, 2), class("b", 0, 1), class("c", 3, 0)], 1.0).unwrap();
        assert_eq!((head.outputs(), head.max_score()), (4, 3));
        assert_eq!(head.scores(&[true, true, false, true]), [3, 1, 2]);
        let huge = Head::new(vec![class("a", usize::MAX, 1), class("b", usize::MAX, 0)], 1.0).unwrap();
        assert_eq!((huge.outputs(), huge.max_score()), (usize::MAX, u32::MAX));
    }
}
