//! The coordinator's state machine with its parts, and read-only views of them. It is created in
//! [`start`](crate::start), and its inputs are handled in [`dispatch`](crate::dispatch).

use crate::answers::Answers;
use crate::audit::Audit;
use crate::base::Base;
use crate::conditions::Conditions;
use crate::facts::Facts;
use crate::history::History;
use crate::jobs::Jobs;
use crate::jobs::link_tests::LinkTests;
use crate::nodes::Nodes;
use crate::nodes::capping::Capping;
use crate::out::Out;
use crate::repairs::Repairs;
use crate::scrub::state::Scrubs;
use crate::storing::Storing;
use crate::stripes::Stripes;
use crate::stripes::surplus::Surplus;

/// The coordinator's state machine; see the crate's documentation.
pub struct Control {
    pub(crate) base: Base,
    pub(crate) nodes: Nodes,
    pub(crate) capping: Capping,
    pub(crate) stripes: Stripes,
    pub(crate) surplus: Surplus,
    pub(crate) jobs: Jobs,
    pub(crate) link_tests: LinkTests,
    pub(crate) repairs: Repairs,
    pub(crate) scrub: Scrubs,
    pub(crate) storing: Storing,
    pub(crate) history: History,
    pub(crate) conditions: Conditions,
    pub(crate) audit: Audit,
    pub(crate) out: Out,
}

/// Borrows nodes, stripes and storage of a [`Control`] read-only, so that another of its state machines can
/// be changed meanwhile.
macro_rules! facts {
    ($control:ident) => {
        $crate::facts::Facts {
            base: &$control.base,
            nodes: &$control.nodes,
            capping: &$control.capping,
            stripes: &$control.stripes,
            storing: &$control.storing,
        }
    };
}

/// Borrows nodes and storage of a [`Control`] read-only, so that its stripes can be changed meanwhile.
macro_rules! outer_facts {
    ($control:ident) => {
        $crate::facts::OuterFacts {
            base: &$control.base,
            nodes: &$control.nodes,
            capping: &$control.capping,
            storing: &$control.storing,
        }
    };
}

/// Borrows all state machines of a [`Control`] as read-only [`Answers`] while its output is written.
macro_rules! answers {
    ($control:ident) => {
        $crate::answers::Answers {
            facts: $crate::control::facts!($control),
            jobs: &$control.jobs,
            repairs: &$control.repairs,
            scrub: &$control.scrub,
            history: &$control.history,
            conditions: &$control.conditions,
        }
    };
}

pub(crate) use {answers, facts, outer_facts};

impl Control {
    pub(crate) fn facts(&self) -> Facts<'_> {
        facts!(self)
    }

    pub(crate) fn answers(&self) -> Answers<'_> {
        answers!(self)
    }

    /// Passes new history entries and storage requests to the state machines that process them.
    pub(crate) fn pass_on(&mut self) {
        self.history.take(self.base.unix_ms, &mut self.out);
        self.storing.take(&mut self.out);
    }
}
