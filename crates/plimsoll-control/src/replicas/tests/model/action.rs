//! What may happen in a configuration of the model, and what is broken in it on purpose.

use super::etcd::Lease;

#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) replicas: usize,
    pub(super) nodes: usize,
}

/// A promise of etcd that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    None,
    /// Records stay when their replica is gone.
    RecordsWithoutLease,
    /// Watches do not see that records of nodes expire.
    ExpiryIsNotSeen,
}

impl Flaw {
    pub(super) const SEEDED: [Self; 2] = [Self::RecordsWithoutLease, Self::ExpiryIsNotSeen];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// A node leaves its replica and opens its streams at another one, or at the same.
    Move {
        node: usize,
        to: usize,
    },
    /// The same, but the earlier replica does not see that its connection is broken.
    MoveUnseen {
        node: usize,
        to: usize,
    },
    /// A replica notices that a connection is broken.
    Notice {
        node: usize,
        at: usize,
    },
    Report {
        node: usize,
    },
    /// A node ends for good.
    End {
        node: usize,
    },
    /// Records that wait are written.
    Write {
        replica: usize,
    },
    /// They are written, and the session ends before the replica knows.
    WriteUnanswered {
        replica: usize,
    },
    /// They are not written, and the session ends.
    WriteFails {
        replica: usize,
    },
    /// Plans that wait are proposed.
    Propose {
        replica: usize,
    },
    /// The next change of the watch arrives.
    Deliver {
        replica: usize,
    },
    /// The last one arrives again.
    Repeat {
        replica: usize,
    },
    /// The session ends; changes on their way are lost.
    Lose {
        replica: usize,
    },
    /// A session begins: the lease is continued or replaced, all records are read.
    Find {
        replica: usize,
    },
    /// A lease without session expires.
    Expire {
        lease: Lease,
    },
    /// A replica is killed and starts again, under its name. Its nodes lose their streams.
    Restart {
        replica: usize,
    },
    /// The store is replaced by a backup from the start, with its revisions.
    Restore,
    /// Half a reporting interval passes.
    Wait,
}

impl Action {
    /// Whether nothing of this kind happens in quiet times.
    pub(super) const fn is_fault(self) -> bool {
        !matches!(
            self,
            Self::Report { .. }
                | Self::Notice { .. }
                | Self::Write { .. }
                | Self::Propose { .. }
                | Self::Deliver { .. }
                | Self::Find { .. }
                | Self::Wait
        )
    }
}
