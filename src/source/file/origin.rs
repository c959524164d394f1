//! How the holder of a kernel lock came by it, as far as that is proven.
//!
//! Pure. The kernel says which process asked for a lock, not how its descriptor came to the one
//! that has it. That the first has ended proves nothing: `flock 9` in a shell takes the lock on
//! the shell's own descriptor and ends at once. A lock was left behind where a process that was
//! seen to have it has ended, or where the holder comes from the one that took it and has ended.

use super::held::Held;
use crate::lock::Origin;
use crate::proc::locks::Class;

/// A process by its pid and its start in ticks since the boot.
pub type Identity = (i32, u64);

/// What is proven of one lock. `first` is the process that was first seen to have it. `has_ended`
/// says whether a process is certainly not there any more; without a start, any of that pid.
pub fn origin(
    one: &Held,
    first: Option<Identity>,
    has_ended: impl Fn(i32, Option<u64>) -> bool,
) -> Origin {
    let Some(holder) = one.holder else { return Origin::Untold };
    let Some(taker) = i32::try_from(one.taker).ok().filter(|pid| *pid > 0) else {
        // Nothing tells two locks apart whose taker is not recorded.
        return Origin::Untold;
    };
    let before = first.filter(|first| *first != holder.identity());
    if before.is_some_and(|(pid, start)| has_ended(pid, Some(start))) {
        return Origin::Left;
    }
    match taker != holder.pid && has_ended(taker, None) {
        // The number of a session stays its first process's while anybody is in it.
        true if holder.session == i64::from(taker) => Origin::Left,
        true => Origin::Through,
        false => Origin::Untold,
    }
}

/// Who is to be remembered as the first that had a lock.
pub fn first(one: &Held, before: Option<Identity>) -> Option<Identity> {
    let holder = one.holder.filter(|_| one.class != Class::Ofd);
    before.or(holder.map(|holder| holder.identity()))
}

#[cfg(test)]
mod tests {
    use super::super::held::Process;
    use super::*;
    use crate::lock::LockMode;

    /// A flock that 50 took and 60 has, which started at 7 and is in this session.
    fn lock(taker: i64, session: i64) -> Held {
        let holder = Process { pid: 60, parent: 1, session, start: 7 };
        Held {
            class: Class::Flock,
            taker,
            mode: LockMode::Exclusive,
            holder: Some(holder),
            holders: 1,
        }
    }

    #[test]
    fn only_what_a_process_had_that_has_ended_was_left() {
        let ended = |pid: i32, start: Option<u64>| pid == 50 || (pid, start) == (40, Some(3));
        for (taker, session, first, expected) in [
            // It took it itself, or the process that took it is there, or is not recorded.
            (60, 60, None, Origin::Untold),
            (70, 60, None, Origin::Untold),
            (70, 70, None, Origin::Untold),
            (-1, 60, Some((40, 3)), Origin::Untold),
            // `flock` on a descriptor of a shell.
            (50, 60, None, Origin::Through),
            (50, 60, Some((60, 7)), Origin::Through),
            // A process of that pid was seen to have it, and is there.
            (50, 60, Some((40, 4)), Origin::Through),
            (50, 60, Some((40, 3)), Origin::Left),
            (60, 60, Some((40, 3)), Origin::Left),
            (50, 50, None, Origin::Left),
        ] {
            let found = origin(&lock(taker, session), first, ended);
            assert_eq!(found, expected, "{taker} {session} {first:?}");
        }
        let nobody = Held { holder: None, ..lock(50, 50) };
        assert_eq!(origin(&nobody, Some((40, 3)), ended), Origin::Untold);
    }

    #[test]
    fn the_first_is_remembered_and_not_replaced() {
        assert_eq!(first(&lock(50, 60), None), Some((60, 7)));
        assert_eq!(first(&lock(50, 60), Some((40, 3))), Some((40, 3)));
        let open = Held { class: Class::Ofd, ..lock(-1, 60) };
        assert_eq!(first(&open, None), None);
    }
}
