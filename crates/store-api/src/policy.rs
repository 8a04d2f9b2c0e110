//! [`StorePolicy`]: how one kind of store differs from others in what the coordinator may do.

/// The properties of a kind of store. The coordinator decides by these values, never by the name of the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorePolicy {
    /// The owner of files and stripes.
    pub ownership: Ownership,
    /// The authority on whether the blocks on a node are in service.
    pub service: Service,
    /// The processes that change stripes.
    pub writers: Writers,
    /// How many blocks of a stripe a node may hold.
    pub spread: Spread,
    /// How reliable a helper's list of blocks is.
    pub lists: Lists,
    /// Which blocks have checksums that show wrong bytes.
    pub checksums: Checksums,
}

/// The owner of files and stripes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// Mend: files are put, read and removed through Mend.
    Own,
    /// A running storage system, whose metadata is authoritative.
    Attached,
}

/// The authority on whether the blocks on a node are in service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// The helper's connection: blocks are in service while the helper is connected.
    FollowsHelper,
    /// The store, which reports [`StoreChange::Service`](crate::StoreChange::Service).
    ReportedByStore,
}

/// The processes that change stripes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    /// Mend is the only writer.
    MendAlone,
    /// The store's own processes write too. A stripe is [claimed](crate::StripeWrite::Claim) before its
    /// blocks are created.
    Others,
}

/// How many blocks of a stripe a node may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// At most one block.
    OnePerNode,
    /// At most one block. But a copy that the store still lists is replaced on its node if that can take it, also
    /// if another block of the stripe is there: the store would remove one of two copies, possibly the new one.
    OnePerNodeInPlace,
    /// Several blocks, spread evenly, if there are fewer nodes than blocks.
    Even,
}

/// How reliable a helper's list of blocks is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lists {
    /// The node holds exactly the listed blocks.
    Complete,
    /// The list is stale on arrival, because other processes create and remove blocks all the time.
    Stale,
}

/// Which blocks have checksums that show wrong bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// All blocks, also those without a digest in the catalog.
    OfAllBlocks,
    /// Only the blocks with a digest in the catalog. In other blocks, only parity shows wrong bytes.
    OfDigests,
}

impl StorePolicy {
    /// The policy of a store that Mend owns.
    pub const OWN: Self = Self {
        ownership: Ownership::Own,
        service: Service::FollowsHelper,
        writers: Writers::MendAlone,
        spread: Spread::OnePerNode,
        lists: Lists::Complete,
        checksums: Checksums::OfAllBlocks,
    };

    /// Whether files are put, read and removed through Mend.
    pub fn owns_files(&self) -> bool {
        self.ownership == Ownership::Own
    }

    /// Whether the store reports which nodes are in service.
    pub fn reports_service(&self) -> bool {
        self.service == Service::ReportedByStore
    }

    /// Whether a stripe is [claimed](crate::StripeWrite::Claim), that is locked, before its blocks are
    /// created.
    pub fn claims_stripes(&self) -> bool {
        self.writers == Writers::Others
    }

    /// Whether a node may hold several blocks of a stripe.
    pub fn shares_nodes(&self) -> bool {
        self.spread == Spread::Even
    }

    /// Whether a bad copy is preferably replaced on its node, also if another block of the stripe is there.
    pub fn replaces_in_place(&self) -> bool {
        self.spread == Spread::OnePerNodeInPlace
    }

    /// Whether a block that is not in a helper's list is missing on that node.
    pub fn trusts_lists(&self) -> bool {
        self.lists == Lists::Complete
    }

    /// Whether only parity shows wrong bytes in blocks without a digest in the catalog.
    pub fn needs_digests(&self) -> bool {
        self.checksums == Checksums::OfDigests
    }
}
