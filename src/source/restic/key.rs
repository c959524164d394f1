//! Key files, key derivation and the budget that bounds it.

/// Memory that all concurrent key derivations may use together.
#[derive(Debug)]
pub struct DerivationBudget {}

impl DerivationBudget {
    /// The budget of this process.
    pub fn of_this_process() -> Self {
        Self::new(256 << 20)
    }

    /// A budget of this many bytes.
    pub fn new(_bytes: u64) -> Self {
        Self {}
    }
}
