//! Errors of the person who asks, as opposed to errors of the work: exit status 2 instead of 1.

/// What was asked wrongly, and what to do instead.
#[derive(Debug)]
pub struct Usage(pub String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}
