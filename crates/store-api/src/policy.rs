//! [`StorePolicy`]: how a kind of store differs from others in what the coordinator may do.

/// One value per kind of store. The coordinator decides by it, and knows no kind by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorePolicy {
    /// Who owns files and stripes.
    pub ownership: Ownership,
    /// Who decides whether the blocks on a node are in service.
    pub service: Service,
    /// Who else changes stripes.
    pub writers: Writers,
    /// How many blocks of a stripe a node may hold.
    pub spread: Spread,
    /// What a helper's list of blocks proves.
    pub lists: Lists,
}

/// Who owns files and stripes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// Mend: files are put, read and removed through it.
    Own,
    /// A running system, whose metadata is authoritative.
    Attached,
}

/// Who decides whether the blocks on a node are in service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// The helper's connection: blocks are in service while it lives.
    FollowsHelper,
    /// The store, by [`StoreChange::Service`](crate::StoreChange::Service).
    ReportedByStore,
}

/// Who else changes stripes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    /// Nobody: Mend is the only writer.
    MendAlone,
    /// The store's own processes too: a stripe is [claimed](crate::StripeWrite::Claim) before blocks of it are made.
    Others,
}

/// How many blocks of a stripe a node may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// At most one.
    OnePerNode,
    /// Several, spread evenly, where there are fewer nodes than blocks.
    Even,
}

/// What a helper's list of blocks proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lists {
    /// The node holds exactly the listed blocks.
    Complete,
    /// Little: others create and remove blocks all the time, and a list is stale on arrival.
    Stale,
}

impl StorePolicy {
    /// The policy of a store that belongs to Mend alone.
    pub const OWN: Self = Self {
        ownership: Ownership::Own,
        service: Service::FollowsHelper,
        writers: Writers::MendAlone,
        spread: Spread::OnePerNode,
        lists: Lists::Complete,
    };

    /// Whether files are put, read and removed through Mend.
    pub fn owns_files(&self) -> bool {
        self.ownership == Ownership::Own
    }

    /// Whether the store reports which nodes are in service.
    pub fn reports_service(&self) -> bool {
        self.service == Service::ReportedByStore
    }

    /// Whether a stripe is claimed before blocks of it are made.
    pub fn claims_stripes(&self) -> bool {
        self.writers == Writers::Others
    }

    /// Whether a node may hold several blocks of a stripe.
    pub fn shares_nodes(&self) -> bool {
        self.spread == Spread::Even
    }

    /// Whether a block that a helper does not list is missing there.
    pub fn trusts_lists(&self) -> bool {
        self.lists == Lists::Complete
    }
}
