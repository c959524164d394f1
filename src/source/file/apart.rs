//! Blocking looks, each on a thread of its own, with a time limit: one that never comes back from
//! a dead file system takes no place from others. What they look at is not known here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::scan::{ErrorClass, ScanError};

const ADVICE: &str = "Check whether the file system hangs (a network mount?).";

/// The looks of one target, one after the other.
pub(super) struct Apart {
    /// A look is under way; one that hangs stays so, and no other is sent after it.
    busy: Arc<AtomicBool>,
    limit: Duration,
}

impl Apart {
    /// For scans that may take so long.
    pub(super) fn new(timeout: Duration) -> Self {
        // Less than the scan's own limit, so that the file system gets the blame.
        Self { busy: Arc::default(), limit: timeout - timeout / 8 }
    }

    /// Looks once.
    pub(super) async fn look<T: Send + 'static>(
        &self,
        doing: &str,
        work: impl FnOnce() -> Result<T, ScanError> + Send + 'static,
    ) -> Result<T, ScanError> {
        let late = |cause: &str| ScanError::new(ErrorClass::Timeout, doing, cause, ADVICE);
        if self.busy.swap(true, Ordering::AcqRel) {
            return Err(late("the look before has not come back from its file system"));
        }
        let (answer, answered) = oneshot::channel();
        let away = Busy(Arc::clone(&self.busy));
        let work = move || {
            let away = away;
            let done = work();
            // Before the answer: who gets it may ask again at once.
            drop(away);
            // Whoever asked may be tired of waiting.
            let _ = answer.send(done);
        };
        let thread = std::thread::Builder::new().name("lock file".into()).spawn(work);
        if let Err(error) = thread {
            let cause = error.to_string();
            return Err(ScanError::new(ErrorClass::Other, "start a thread", &cause, ""));
        }
        match timeout(self.limit, answered).await {
            Ok(Ok(done)) => done,
            Ok(Err(_)) => {
                let cause = "the thread that looked has failed";
                Err(ScanError::new(ErrorClass::Internal, doing, cause, "Please report it."))
            }
            Err(_) => Err(late(&format!("no answer from the file system in {:?}", self.limit))),
        }
    }
}

struct Busy(Arc<AtomicBool>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_look_that_hangs_is_told_by_what_it_looks_at_and_has_no_second_beside_it() {
        let apart = Apart::new(Duration::from_millis(80));
        let (release, hung) = mpsc::channel::<()>();
        let hang = move || hung.recv().map_err(|_| ScanError::new(ErrorClass::Other, "", "", ""));
        let error = apart.look("look at /srv/x", hang).await.expect_err("hangs");
        assert_eq!((error.class, &*error.doing), (ErrorClass::Timeout, "look at /srv/x"));
        assert!(error.cause.contains("file system in 70ms"), "{error}");
        let error = apart.look("look at /srv/x", || Ok(())).await.expect_err("is busy");
        assert_eq!(error.class, ErrorClass::Timeout);
        assert!(error.cause.contains("has not come back"), "{error}");
        release.send(()).expect("somebody waits");
        while apart.busy.load(Ordering::Acquire) {
            tokio::task::yield_now().await;
        }
        let patient = Apart { limit: Duration::from_secs(600), ..apart };
        assert_eq!(patient.look("look", || Ok(7)).await.expect("looks again"), 7);
    }
}
