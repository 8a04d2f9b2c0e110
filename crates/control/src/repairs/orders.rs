//! What people ask for, as it is kept until it ends.

use std::collections::BTreeMap;

use codes::BlockIndex;
use repair::recovery::{HelperPolicy, Kind, RepairSpec, Target};
use repair::{BlockId, NodeId, Scheme, StripeId};
use serde::{Deserialize, Serialize};
use stores::StripeRecord;

use crate::error::RequestError;
use crate::facts::Facts;
use ::views::RepairRequest;

/// What was asked for, as it is kept in the catalog.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    pub target: Target,
    /// A stripe that came with the request, as it was then, and the blocks that are wanted of it with their new homes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<GivenOrder>,
    /// How a node is emptied, if that is the target.
    pub way: Way,
    pub scheme: Scheme,
    pub slice_bytes: Option<u32>,
    pub verify_parity: bool,
    pub helpers: HelperPolicy,
    /// The only nodes that get blocks; any, if there are none.
    pub requestors: Vec<NodeId>,
    /// Nothing of it starts for now.
    pub paused: bool,
    /// Nobody asked for it: a helper was gone for too long.
    pub by_itself: bool,
    /// When it was asked for.
    pub asked_unix_ms: u64,
}

/// What of a given stripe is to be rebuilt, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GivenOrder {
    pub stripe: StripeRecord,
    pub homes: BTreeMap<BlockIndex, NodeId>,
}

/// How a node is emptied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Way {
    /// By copies from it while it has room, and else rebuilt from others.
    #[default]
    Both,
    /// By copies from it.
    Migrate,
    /// Rebuilt from others, as far as they can.
    Rebuild,
}

impl Way {
    const ALL: [(Self, &str); 3] =
        [(Self::Both, "both"), (Self::Migrate, "migrate"), (Self::Rebuild, "rebuild")];

    fn named(name: Option<&str>) -> Result<Self, RequestError> {
        let Some(name) = name else { return Ok(Self::default()) };
        let found = Self::ALL.into_iter().find(|(_, known)| *known == name);
        found.map(|(way, _)| way).ok_or_else(|| RequestError::NoSuchWay(name.to_owned()))
    }
}

impl Order {
    /// An order for a target, in the usual way.
    pub fn new(target: Target, scheme: Scheme, asked_unix_ms: u64) -> Self {
        Self {
            target,
            given: None,
            way: Way::default(),
            scheme,
            slice_bytes: None,
            verify_parity: true,
            helpers: HelperPolicy::default(),
            requestors: Vec::new(),
            paused: false,
            by_itself: false,
            asked_unix_ms,
        }
    }

    /// Whether it asks for something else than another one, whenever and by whom that was asked for.
    pub fn differs(&self, other: &Self) -> bool {
        let Self { paused, by_itself, asked_unix_ms, .. } = *other;
        Self { paused, by_itself, asked_unix_ms, ..self.clone() } != *other
    }

    /// How the stripes of its target get to where they shall be.
    pub fn kind(&self) -> Kind {
        match (&self.target, self.way) {
            (&Target::Drain(from), Way::Both) => Kind::Drain { from },
            (&Target::Drain(from), Way::Migrate) => Kind::Migrate { from },
            (&Target::Drain(from), Way::Rebuild) => Kind::Rebuild { from },
            _ => Kind::Reconstruct,
        }
    }

    /// Whether other lost blocks of the node's stripes stay as they are: their helpers may be in maintenance or in their grace
    /// period, or what takes their place may be another.
    pub fn is_of_node_alone(&self) -> bool {
        self.by_itself || !self.requestors.is_empty()
    }

    /// Whether many stripes are repaired, so that work is dealt out among nodes.
    pub fn is_wide(&self) -> bool {
        matches!(self.target, Target::Node(_) | Target::Drain(_) | Target::Rebalance(_) | Target::All)
    }

    pub fn spec(&self) -> RepairSpec {
        let homes = self.given.iter().flat_map(|given| given.homes.values());
        let requestors = self.requestors.iter().chain(homes).copied().collect();
        RepairSpec { helpers: self.helpers, requestors, ..RepairSpec::default() }
    }
}

impl<'a> Facts<'a> {
    pub(super) fn order(self, request: &RepairRequest) -> Result<Order, RequestError> {
        let policy = request.policy.as_deref().map_or(Ok(HelperPolicy::default()), str::parse)?;
        let requestors: Result<Vec<NodeId>, RequestError> =
            request.requestors.iter().map(|name| self.nodes.node_named(self.base, name)).collect();
        let (target, given) = self.target(request)?;
        Ok(Order {
            given,
            way: Way::named(request.way.as_deref())?,
            slice_bytes: request.slice_bytes,
            verify_parity: request.verify_parity.unwrap_or(true),
            helpers: policy,
            requestors: requestors?,
            ..Order::new(target, self.scheme(request.scheme.as_deref())?, self.base.unix_ms)
        })
    }

    fn target(self, request: &RepairRequest) -> Result<(Target, Option<GivenOrder>), RequestError> {
        let RepairRequest { block, stripe, node, drain, all, homes, .. } = request;
        let target = match (block, stripe, node, drain, all) {
            (None, Some(stripe), None, None, false) if !homes.is_empty() => {
                let stripe = StripeId(stripe.clone());
                let homes = self.given_homes(&stripe, homes)?;
                let record = self.stripes.given.get(&stripe).expect("it has blocks").clone();
                return Ok((Target::Stripe(stripe), Some(GivenOrder { stripe: record, homes })));
            }
            // Homes are for stripes that were described, and for nothing else.
            _ if !homes.is_empty() => Err(RequestError::NoOneTarget),
            // People leave eras out of names; records of the queue do not.
            (Some(block), None, None, None, false) => {
                let (stripe, index) = self.stripes.picture.find_block(&BlockId(block.clone()))?;
                Ok(Target::Block(
                    self.stripes.picture.stripe(&stripe)?.blocks[usize::from(index.0)].id.clone(),
                ))
            }
            (None, Some(stripe), None, None, false) => {
                Ok(Target::Stripe(self.stripes.picture.stripe(&StripeId(stripe.clone()))?.id))
            }
            (None, None, Some(name), None, false) => {
                let node = self.nodes.node_named(self.base, name)?;
                match self.nodes.is_connected(node) {
                    true => Err(RequestError::NodeIsUp { name: name.clone() }),
                    false => Ok(Target::Node(node)),
                }
            }
            (None, None, None, Some(name), false) => {
                Ok(Target::Drain(self.nodes.node_named(self.base, name)?))
            }
            (None, None, None, None, true) => Ok(Target::All),
            _ => Err(RequestError::NoOneTarget),
        };
        Ok((target?, None))
    }

    pub(crate) fn scheme(self, asked: Option<&str>) -> Result<Scheme, RequestError> {
        Ok(asked.unwrap_or(&self.base.settings.scheme).parse()?)
    }
}
