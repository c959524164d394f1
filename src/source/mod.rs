//! Sources: the code that reads one kind of lock each, behind one trait.
//!
//! `SOURCES` is the table of them; adding a source is a row here, a variant of
//! [`crate::target::SourceSpec`] and a module.

use std::sync::Arc;

use async_trait::async_trait;

use crate::lock::LeasePolicy;
use crate::proc::machine::Machine;
use crate::scan::{ErrorClass, Look, ScanError};
use crate::target::{SourceSpec, TargetSpec, Watched};
use crate::telemetry::Telemetry;

pub mod file;
pub mod restic;

/// What the whole process shares. Made once, by `app`.
#[derive(Clone, Debug)]
pub struct Context {
    /// The exporter's own counters.
    pub telemetry: Arc<Telemetry>,
    /// Memory for key derivations, shared by all targets.
    pub derivations: Arc<restic::derivation::DerivationBudget>,
    /// The machine that the exporter runs on, and its processes.
    pub machine: Arc<Machine>,
}

/// Reads the locks of one target. It keeps what makes the next scan cheap (open connections,
/// derived keys, locks already read) and lives as long as its target's specification.
#[async_trait]
pub trait LockSource: Send + Sync {
    /// Looks once. The caller sets the time limit and may drop the future at any await.
    ///
    /// # Errors
    /// [`ScanError`] when not everything could be seen; there is no partial result.
    async fn scan(&self) -> Result<Look, ScanError>;

    /// Finishes what a scan would leave pending and show as sealed (deriving the key), starting it
    /// if need be. It has no time limit, since derivations queue for memory, and no result: a
    /// failure shows in the next scan. At once when nothing is pending. Dropping the future ends
    /// the waiting alone.
    async fn ready(&self);
}

/// One kind of lock: a row of [`SOURCES`].
#[derive(Debug)]
pub struct SourceKind {
    /// The `source` label and the name of its `--collector.NAME` flag.
    pub name: &'static str,
    /// One line for `--help`.
    pub help: &'static str,
    /// The rhythm of its holders.
    pub policy: LeasePolicy,
}

/// Every source.
pub const SOURCES: &[&SourceKind] = &[&restic::KIND, &file::KIND];

/// Makes the reader of one target. Does no I/O: what is wrong with a secret or a backend shows in
/// the first scan, as that target's error.
pub fn open(spec: &TargetSpec, context: &Context) -> Box<dyn LockSource> {
    match &spec.source {
        SourceSpec::Restic(restic) => {
            Box::new(restic::Restic::new(restic.clone(), spec.timeout, context))
        }
        SourceSpec::File(file) => {
            Box::new(file::LockFile::new(file.clone(), spec.timeout, context))
        }
        SourceSpec::Search(_) => Box::new(NoLock),
    }
}

/// A search is run by whoever knows what becomes of its finds.
struct NoLock;

#[async_trait]
impl LockSource for NoLock {
    async fn scan(&self) -> Result<Look, ScanError> {
        let cause = "this is a search, and holds no locks";
        Err(ScanError::new(ErrorClass::Internal, "scan", cause, ""))
    }

    async fn ready(&self) {}
}

/// The rhythm of a target's holders.
pub fn policy(spec: &TargetSpec) -> LeasePolicy {
    match spec.source.watched() {
        Watched::Restic(_) => restic::KIND.policy,
        Watched::File(_) => file::KIND.policy,
    }
}
