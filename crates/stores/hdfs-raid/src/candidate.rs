//! Which surveyed files are worked on, and towards which goal. Commands and the coordinator share these rules.

use crate::{Codec, Exclusion, Goal, ParityState, Policies, RaidPolicy, StaleParity, State, Unit};

/// Whether files are encoded, or their encoding is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Files are encoded as policies require.
    Encode,
    /// Encoded files become replicated files again.
    Undo,
}

/// A surveyed file that can be worked on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate<'a> {
    /// The codec of the present parity, or of the policy.
    pub codec: &'a Codec,
    /// The policy, if one with this codec covers the file. A file that only gets its former replicas has none.
    pub policy: Option<&'a RaidPolicy>,
    /// The desired state.
    pub goal: Goal,
}

impl RaidPolicy {
    /// Returns the state that the policy requires.
    pub fn goal(&self) -> Goal {
        Goal::Encoded { replication: self.replication, parity_replication: self.parity_replication }
    }
}

impl Unit {
    /// Whether the loss of one DataNode could cost data: the file has one replica and no valid parity, or a DataNode has too many
    /// blocks of a stripe.
    pub fn is_unsafe(&self) -> bool {
        let is_single = self.health.single > 0 || self.health.unprotected > 0;
        match self.state {
            State::Stale(_) | State::ShouldEncode | State::Damaged(_) if is_single => true,
            // A former work was interrupted before it had moved the blocks apart, or HDFS's Balancer has moved them.
            State::Misplaced(_) | State::Damaged(_) => self.health.exposed > 0,
            _ => false,
        }
    }

    /// Whether parity exists that is not valid, or not at the path that belongs to the file. Even a file that is not
    /// encoded now needs its former replicas then.
    fn is_unprotected(&self) -> bool {
        self.stale_parity().is_some() || self.stray().is_some()
    }

    /// Returns why the parity is not used, also if a block of the file is lost.
    fn stale_parity(&self) -> Option<StaleParity> {
        match self.protection.as_ref()?.state {
            ParityState::Stale(why) => Some(why),
            _ => None,
        }
    }

    /// Whether the file may have too few replicas, because its parity is not that of its contents. Parity that may still
    /// be proven does not count.
    fn has_stale_parity(&self) -> bool {
        self.stale_parity().is_some_and(|why| !why.is_unchecked() && why != StaleParity::Older)
    }

    /// Whether the encoding is being undone.
    fn is_undone(&self) -> bool {
        self.protection.as_ref().is_some_and(|protection| protection.state == ParityState::Undone)
    }
}

/// Returns how a surveyed file is worked on. Outside of the folders whose files the coordinator repairs, a file is a
/// candidate too. The caller must not encode it: see [`Unit::held`]. If its parity is stale, it only gets its former
/// replicas.
///
/// # Errors
/// The reason for leaving the file alone.
pub fn candidate<'a>(
    unit: &Unit,
    policies: &'a Policies,
    direction: Direction,
) -> Result<Candidate<'a>, String> {
    if let State::Excluded(why) = &unit.state {
        return Err(why.to_string());
    }
    // The operator's wish to undo an encoding outlives the command.
    if let (Direction::Encode, State::Unrepairable(_), false) = (direction, &unit.state, unit.is_undone()) {
        return Err(unit.state.reason().unwrap_or_default());
    }
    // Another version of Mend knows what the note means.
    if unit.stale_parity() == Some(StaleParity::UnknownNote) {
        return Err(StaleParity::UnknownNote.to_string());
    }
    let is_open_to_work = unit.held == Some(Exclusion::Outside) || unit.is_unprotected();
    if let (Direction::Encode, Some(why), false) = (direction, &unit.held, is_open_to_work) {
        return Err(why.to_string());
    }
    let policy = policies.policies().iter().find(|policy| Some(&policy.name) == unit.policy.as_ref());
    let codec = unit.codec.as_ref().and_then(|name| policies.codec(name)).ok_or("it has no codec")?;
    let goal = match (direction, policy) {
        (Direction::Encode, None) if unit.stray().is_some() => Goal::Protected,
        (Direction::Encode, None) => return Err(without_policy(unit)),
        (Direction::Encode, Some(policy)) => policy.goal(),
        (Direction::Undo, _) if unit.state == State::ShouldEncode => {
            return Err("it has no parity".to_owned());
        }
        (Direction::Undo, _) => Goal::Plain,
    };
    let is_only_raised = direction == Direction::Encode && unit.is_outside && unit.has_stale_parity();
    Ok(Candidate { codec, policy: policy.filter(|_| !is_only_raised), goal })
}

/// Returns why an encoded file stays unchanged, if no policy with its codec covers it.
fn without_policy(unit: &Unit) -> String {
    let codec = unit.codec.as_deref().unwrap_or_default();
    match (unit.stale_parity(), &unit.state) {
        (Some(why), _) if why.is_unchecked() => {
            format!("Mend has not checked its parity, and no policy of codec {codec} covers it: write one")
        }
        (Some(_), _) => {
            format!("its parity is stale, and no policy of codec {codec} covers it: undo its encoding")
        }
        (None, State::Unrepairable(_)) => unit.state.reason().unwrap_or_default(),
        (None, _) => format!("it is encoded, and no policy of codec {codec} covers it"),
    }
}
