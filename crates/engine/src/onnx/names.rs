//! Names of values. ONNX requires C identifiers, each of which is defined once.

use rustc_hash::{FxHashMap, FxHashSet};

/// The names that are in use.
#[derive(Debug, Default)]
pub struct Names {
    used: FxHashSet<String>,
    /// The last number appended to a name.
    numbers: FxHashMap<String, usize>,
}

impl Names {
    /// Returns a name that is not in use: the given one as a C identifier, with a number if it is taken.
    pub fn unique(&mut self, name: &str) -> String {
        let name = identifier(name);
        if self.used.insert(name.clone()) {
            return name;
        }
        let number = self.numbers.entry(name.clone()).or_default();
        loop {
            *number += 1;
            let numbered = format!("{name}_{number}");
            if self.used.insert(numbered.clone()) {
                return numbered;
            }
        }
    }
}

/// Returns a C identifier: other characters become underscores.
fn identifier(name: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' };
    let name: String = name.chars().map(legal).collect();
    let begins_well = name.starts_with(|c: char| !c.is_ascii_digit());
    if begins_well { name } else { format!("_{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_identifiers() {
        let mut names = Names::default();
        let unique: Vec<String> =
            ["a.b", "a_b", "a-b", "a_b_1", "1", "", "größe"].iter().map(|name| names.unique(name)).collect();
        assert_eq!(unique, ["a_b", "a_b_1", "a_b_2", "a_b_1_1", "_1", "_", "gr__e"]);
    }
}
