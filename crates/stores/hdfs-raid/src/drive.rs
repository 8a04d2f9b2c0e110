//! Drives the [`Work`] on one file to its end: when to look at the namespace, when to try again, and when to
//! give up.
//!
//! The driver carries out each [`Order`] and reports the result by one of the `handle_*` methods, which return
//! the next order. `Work` decides what to do; this machine only adds the reactions to failures, to a NameNode
//! that does not answer, and to events that do not come. Giving up is safe at any point, because a later run
//! continues from the facts.
//!
//! **Invariants:**
//! - An action follows from the latest look. The replication is set only within [`DECISION_MS`] of this look.
//! - Every run ends, unless the NameNode keeps answering and the file keeps making progress.
//! - A file whose blocks cannot be moved apart gets its replicas back if the loss of one DataNode could cost data, and so does a
//!   file of which HDFS keeps all replicas.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::facts::{DataNodes, Facts};
use crate::lower::SETTLED;
use crate::{Action, Codec, DECISION_MS, End, Goal, Next, Waiting, Work};

/// The pause between two looks at a file that waits for an event: the interval of DataNodes' heartbeats.
const LOOK_AGAIN_MS: u64 = 3_000;
/// The pause before an action is tried again, or a NameNode that does not answer is asked again.
const RETRY_MS: u64 = 5_000;
/// The longest time in which the NameNode does not answer, or is in safe mode.
const UNAVAILABLE_MS: u64 = 600_000;
/// The longest wait for lost blocks. DataNodes report new replicas within this time.
const REPAIR_MS: u64 = 30_000;
/// The longest wait for replicas while nothing about the file changes.
const REPLICAS_MS: u64 = 600_000;
/// The most failures of actions in a row, and in all.
const FAILURES: [u32; 2] = [3, 30];
/// The number of bits of a term that identify the program. The others contain the time in milliseconds.
pub const TERM_BITS: u32 = 20;
/// The most times that parity is found wrong. Each time, it is made again.
const REFUTED: u32 = 3;
/// The most times that parity of the same stripe is written.
const WRITTEN: u32 = 5;

/// The drive of one file.
#[derive(Clone, Debug)]
pub struct Drive {
    codec: Codec,
    tolerated: usize,
    goal: Goal,
    least_term: u64,
    /// Replicas are settled if they have not changed for this long.
    settled_ms: u64,
    /// The work; `None` before the first look.
    work: Option<Work>,
    /// The action that is being carried out.
    action: Option<Action>,
    /// The latest facts, and the time since which they have been the same.
    seen: Option<(Facts, u64)>,
    /// The time since which no look or action has succeeded. A look alone does not count before an action.
    unavailable_since_ms: Option<u64>,
    /// Failures in a row, and in all.
    failures: [u32; 2],
    refuted: u32,
    written: BTreeMap<usize, u32>,
    /// Whether the file has to get its replicas back before the work is given up, according to the latest look.
    is_exposed: bool,
    /// Why the work ends once the file has its replicas back, if it needs them.
    stop: Option<Stop>,
}

/// The driver's next task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Look at the namespace; then [`Drive::handle_look`].
    Look,
    /// Pause, then look at the namespace.
    Pause {
        /// The length of the pause.
        ms: u64,
        /// Why there is nothing to do now.
        why: Pause,
    },
    /// Carry out the action; then [`Drive::handle_action`].
    Act {
        /// The action.
        action: Action,
        /// The time after which [`Action::SetReplication`] must not take place.
        until_ms: u64,
    },
    /// The work has ended.
    End(Result<End, Stop>),
}

/// The reason for a pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pause {
    /// The file waits for an event.
    Waiting(Waiting),
    /// A look or an action failed and is tried again.
    Retry(Trouble),
}

/// Why a look or an action failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// The NameNode is in safe mode.
    #[error("the NameNode is in safe mode")]
    SafeMode,
    /// No answer. An action may have been carried out.
    #[error("{0}")]
    Unreachable(String),
    /// HDFS refuses.
    #[error("{text}")]
    Refused {
        /// The kind of the failure.
        kind: Refusal,
        /// HDFS's message.
        text: String,
    },
}

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The user may not do this.
    Permission,
    /// A quota would be exceeded.
    Quota,
    /// No DataNode has room.
    Space,
    /// The namespace has changed since the look.
    Changed,
    /// Any other failure.
    Other,
}

/// Why the work on a file was given up. The file has its former replication, or proven parity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// HDFS refuses an action or a look.
    #[error("{}: {text}", action.as_deref().unwrap_or("look at the file"))]
    Refused {
        /// The action; `None` for a look.
        action: Option<String>,
        /// The kind of the failure.
        kind: Refusal,
        /// HDFS's message.
        text: String,
    },
    /// The NameNode has not answered for a long time, or has been in safe mode.
    #[error("given up after {minutes} minutes: {0}", minutes = UNAVAILABLE_MS / 60_000)]
    Unavailable(Trouble),
    /// The facts have stayed the same for a long time.
    #[error("nothing has changed for a long time; the next step is to {0}")]
    Stalled(Waiting),
    /// HDFS removes no replicas of the file, although all DataNodes with surplus ones answer. It keeps them for a snapshot, or
    /// until the DataNodes' next full block reports after a failover. The file is not encoded.
    #[error(
        "HDFS keeps more replicas of the file than it asks for. It does so after a failover of the NameNode, until its \
         DataNodes have reported all blocks (up to 6 hours), and always if the file was moved out of a folder with snapshots"
    )]
    Kept,
    /// Parity was found wrong several times.
    #[error("the parity was made {REFUTED} times, and each time was not that of the data")]
    WrongParity,
    /// Parity of a stripe was written several times, and was not there as it should be.
    #[error("the parity of stripe {0} was written {WRITTEN} times, and each time was not as it should be")]
    Unstable(usize),
    /// As [`End::Lost`].
    #[error("{}", End::Lost { block: *block, is_decodable: *is_decodable })]
    Lost {
        /// Position of the block in the file.
        block: usize,
        /// Whether the parity suffices to rebuild all lost blocks of the file.
        is_decodable: bool,
    },
}

impl Drive {
    /// Creates a drive, which begins with a look. `tolerated` is the number of losses that the codec
    /// [tolerates](Codec::tolerates). The term will be at least `least_term`, which no other coordinator may
    /// have, and above those of all drafts.
    pub fn new(codec: Codec, tolerated: usize, goal: Goal, least_term: u64) -> Self {
        Self {
            codec,
            tolerated,
            goal,
            least_term,
            settled_ms: SETTLED.as_millis() as u64,
            work: None,
            action: None,
            seen: None,
            unavailable_since_ms: None,
            failures: [0; 2],
            refuted: 0,
            written: BTreeMap::new(),
            is_exposed: false,
            stop: None,
        }
    }

    /// Sets the time without changes after which replicas count as settled, and may be moved: at least two heartbeats of
    /// DataNodes.
    pub fn with_settled(self, after: Duration) -> Self {
        Self { settled_ms: after.as_millis() as u64, ..self }
    }

    /// Returns the desired state.
    pub fn goal(&self) -> Goal {
        self.goal
    }

    /// Returns the term of the work; `None` before the first look.
    pub fn term(&self) -> Option<u64> {
        self.work.as_ref().map(|work| work.term)
    }

    /// Takes the result of a look, which began at `looked_ms`.
    pub fn handle_look(
        &mut self,
        look: Result<(Facts, &DataNodes), Trouble>,
        looked_ms: u64,
        now_ms: u64,
    ) -> Order {
        self.action = None;
        let (facts, nodes) = match look {
            Ok(look) => look,
            Err(trouble) => {
                self.work.iter_mut().for_each(Work::handle_failed_look);
                return self.try_again(trouble, now_ms);
            }
        };
        self.begin(&facts);
        let work = self.work.as_mut().expect("begun");
        let retreat = match self.stop {
            Some(Stop::Kept) => work.restore(&facts),
            _ => work.retreat(&facts, nodes),
        };
        self.is_exposed = retreat.is_some();
        if let Some(stop) = self.stop.clone() {
            return match retreat {
                Some(action) => self.act(action, looked_ms + DECISION_MS, now_ms),
                None => Order::End(Err(stop)),
            };
        }
        let next = work.next(&facts, nodes, looked_ms);
        let keeps_surplus = work.keeps_surplus(&facts, nodes);
        // The reason for which a file is unfit may contain its age.
        let facts = Facts { unfit: None, ..facts };
        let since_ms = match self.seen.take() {
            Some((before, since_ms)) if before == facts => since_ms,
            _ => now_ms,
        };
        self.seen = Some((facts, since_ms));
        match next {
            Next::End(End::Lost { block, is_decodable }) => self.give_up(Stop::Lost { block, is_decodable }),
            Next::End(end) => Order::End(Ok(end)),
            Next::Wait(waiting) => self.wait(waiting, now_ms.saturating_sub(since_ms), keeps_surplus),
            Next::Act(action) => self.act(action, looked_ms + DECISION_MS, now_ms),
        }
    }

    /// Begins the work at the first look.
    fn begin(&mut self, facts: &Facts) {
        if self.work.is_none() {
            let term = own_term(self.least_term, facts.next_term());
            let mut work = Work::new(self.codec.clone(), self.tolerated, self.goal, term);
            work.settled_ms = self.settled_ms;
            self.work = Some(work);
        }
    }

    /// Waits for an event, unless nothing has changed for long.
    fn wait(&mut self, waiting: Waiting, same_for_ms: u64, keeps_surplus: bool) -> Order {
        self.unavailable_since_ms = None;
        let limit_ms = match waiting {
            Waiting::Repair => REPAIR_MS,
            Waiting::Replicas | Waiting::Settled => REPLICAS_MS,
        };
        match waiting {
            _ if same_for_ms < limit_ms => Order::Pause { ms: LOOK_AGAIN_MS, why: Pause::Waiting(waiting) },
            Waiting::Settled if keeps_surplus => self.give_up(Stop::Kept),
            _ => self.give_up(Stop::Stalled(waiting)),
        }
    }

    /// Gives the work up. If the file may have to get its replicas back first, another look decides about this.
    fn give_up(&mut self, stop: Stop) -> Order {
        let may_need_replicas = self.is_exposed || stop == Stop::Kept;
        if !may_need_replicas || self.stop.is_some() {
            return Order::End(Err(stop));
        }
        (self.failures[0], self.stop) = (0, Some(stop));
        Order::Look
    }

    /// Takes the result of an action; that of [`Action::Prove`] is whether the parity is right.
    pub fn handle_action(&mut self, result: Result<Option<bool>, Trouble>, now_ms: u64) -> Order {
        let is_right = match result {
            Ok(is_right) => is_right,
            Err(trouble) => return self.try_again(trouble, now_ms),
        };
        (self.failures[0], self.unavailable_since_ms) = (0, None);
        if let (Some(Action::Prove { note, .. }), Some(is_right)) = (self.action.take(), is_right) {
            self.work.as_mut().expect("begun").handle_proof(note, is_right);
            self.refuted += u32::from(!is_right);
        }
        if self.refuted >= REFUTED { self.give_up(Stop::WrongParity) } else { Order::Look }
    }

    /// Takes the action back: it was not begun, because the driver was busy. Another look decides what comes next.
    pub fn handle_postponed(&mut self) -> Order {
        if let Some(Action::Write { stripe, .. }) = self.action.take()
            && let Some(written) = self.written.get_mut(&stripe)
        {
            *written -= 1;
        }
        Order::Look
    }

    fn act(&mut self, action: Action, until_ms: u64, now_ms: u64) -> Order {
        if let Action::Write { stripe, .. } = &action {
            let written = self.written.entry(*stripe).or_default();
            *written += 1;
            if *written > WRITTEN {
                return self.give_up(Stop::Unstable(*stripe));
            }
        }
        let is_late = matches!(action, Action::SetReplication { .. }) && now_ms >= until_ms;
        self.action = Some(action.clone());
        match is_late {
            true => {
                let text = format!("the look took longer than {} s", DECISION_MS / 1000);
                self.try_again(Trouble::Refused { kind: Refusal::Other, text }, now_ms)
            }
            false => Order::Act { action, until_ms },
        }
    }

    /// Pauses before another look, or gives up.
    fn try_again(&mut self, trouble: Trouble, now_ms: u64) -> Order {
        let stop = match &trouble {
            Trouble::SafeMode | Trouble::Unreachable(_) => {
                let since_ms = *self.unavailable_since_ms.get_or_insert(now_ms);
                let is_over = now_ms.saturating_sub(since_ms) >= UNAVAILABLE_MS;
                is_over.then(|| Stop::Unavailable(trouble.clone()))
            }
            Trouble::Refused { kind, text } => {
                self.failures.iter_mut().for_each(|count| *count += 1);
                let is_final = matches!(kind, Refusal::Permission | Refusal::Quota | Refusal::Space);
                let is_over =
                    is_final || self.failures.iter().zip(FAILURES).any(|(&count, most)| count >= most);
                let action = self.action.as_ref().map(ToString::to_string);
                is_over.then(|| Stop::Refused { action, kind: *kind, text: text.clone() })
            }
        };
        // Some of the moves may have succeeded since the look.
        self.is_exposed |= matches!(self.action.take(), Some(Action::Move(_)));
        match stop {
            Some(stop) => self.give_up(stop),
            None => Order::Pause { ms: RETRY_MS, why: Pause::Retry(trouble) },
        }
    }
}

/// Returns a term of the same program that is at least `least`. So two programs that take over the same draft have different
/// terms, and one of them gives way.
fn own_term(own: u64, least: u64) -> u64 {
    if own >= least {
        return own;
    }
    let program = (1 << TERM_BITS) - 1;
    let term = (least & !program) | (own & program);
    if term >= least { term } else { term.saturating_add(1 << TERM_BITS) }
}

impl fmt::Display for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting(waiting) => fmt::Display::fmt(waiting, f),
            Self::Retry(trouble) => write!(f, "{trouble}; trying again"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both begin to continue a draft with the same term at the same time.
    #[test]
    fn two_programs_never_have_the_same_term() {
        let term = |ms: u64, program: u64| ms << TERM_BITS | program;
        for least in [term(9, 3), term(9, 7) + 1, term(9, 8) + 1, u64::MAX >> 1] {
            let [one, other] = [own_term(term(5, 7), least), own_term(term(6, 8), least)];
            assert!(one >= least && other >= least && one != other, "{one} {other}");
        }
        assert_eq!(own_term(term(9, 7), term(5, 3)), term(9, 7));
    }
}
