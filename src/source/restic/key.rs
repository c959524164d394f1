//! Key files, key derivation and the budget that bounds it.

/// Memory that all concurrent key derivations may use together.
#[derive(Debug)]
pub struct DerivationBudget {}

impl DerivationBudget {
    /// A budget of this many bytes.
    pub fn new(_bytes: u64) -> Self {
        Self {}
    }
}
