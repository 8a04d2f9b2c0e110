//! What the storage's threads share, and what they do to it.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use codes::BlockIndex;
use repair::{BlockId, NodeId, StripeId};
use stores::attached::Teller;
use stores::dir::DirCatalog;
use stores::{
    BlockState, CatalogError, Done, RecordWrite, Storage as _, StoreChange, StoreError, Term, Write,
};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::claims::Claims;
use super::open::Attachment;
use super::view::{View, shard_of};
use super::{BAD_PREFIX, bad_key, bad_value, parse_bad_key};
use crate::listing::{Listing, ServerId};
use crate::master::MasterClient;
use crate::server::VolumeServer;
use crate::volumes::Change;

/// What the threads share.
pub(super) struct Shared {
    pub master: MasterClient,
    pub attachment: Attachment,
    pub claims: tokio::sync::Mutex<Claims>,
    /// Held while a volume is claimed.
    pub claiming: tokio::sync::Mutex<()>,
    /// Something was listed that may have to be looked into.
    pub listed: Notify,
    state: Mutex<State>,
}

/// All that is known.
pub(super) struct State {
    pub records: DirCatalog,
    pub term: Term,
    pub view: View,
    /// What was said last of what keeps Mend from its work.
    said: Vec<String>,
    /// When what is known was asked for.
    pub listed: Option<Instant>,
    teller: Teller,
}

impl State {
    pub fn tell(&self, changes: Vec<StoreChange>) {
        self.teller.tell(changes);
    }

    /// Tells what keeps Mend from its work, if that is news; the lines that were not said the last time.
    pub fn tell_troubles(&mut self, lines: Vec<String>) -> Vec<String> {
        if lines == self.said {
            return Vec::new();
        }
        self.tell(vec![StoreChange::Troubles(lines.clone())]);
        let said = std::mem::replace(&mut self.said, lines.clone());
        lines.into_iter().filter(|line| !said.contains(line)).collect()
    }

    /// What keeps Mend from its work, for somebody who has heard nothing.
    pub fn troubles(&self) -> StoreChange {
        StoreChange::Troubles(self.said.clone())
    }

    /// Takes in a listing, whole or of some volumes, and tells what is new in it.
    ///
    /// # Errors
    /// If the number of a new server cannot be stored.
    pub fn take(
        &mut self,
        attachment: &Attachment,
        asked: Instant,
        apply: impl FnOnce(&mut View) -> Vec<Change>,
    ) -> Result<Vec<Change>, CatalogError> {
        self.listed = Some(asked);
        let changes = apply(&mut self.view);
        let mut told = Vec::new();
        for server in self.view.unnumbered() {
            let name = attachment.name_of(&server, &self.view.volumes().servers()[&server]);
            let node = self.records.node_id(&name)?;
            let records = self.records.nodes()?;
            told.extend(records.into_iter().find(|record| record.id == node).map(StoreChange::Node));
            self.view.number(server, node);
        }
        self.forget_marks()?;
        let volumes: BTreeSet<u32> = changes.iter().filter_map(Change::volume).collect();
        let service = self.view.tell_service();
        // A server comes before what it has, and goes after.
        let (came, went): (Vec<_>, Vec<_>) =
            service.into_iter().partition(|change| matches!(change, StoreChange::Service(_, true)));
        told.extend(came);
        told.extend(self.view.tell(volumes));
        told.extend(went);
        self.tell(told);
        Ok(changes)
    }
}

impl State {
    /// Forgets how copies were that no longer are of any volume.
    fn forget_marks(&mut self) -> Result<(), CatalogError> {
        let keys = self
            .view
            .pointless_marks()
            .into_iter()
            .map(|(stripe, index, node)| bad_key(&stripe, index, node));
        let writes: Vec<Write> = keys.map(|key| Write::Records(RecordWrite::Remove(key))).collect();
        if writes.is_empty() {
            return Ok(());
        }
        for done in self.records.carry_out(self.term, &writes) {
            match done {
                Ok(_) | Err(StoreError::Fenced { .. }) => {} // Whoever took over forgets it.
                Err(StoreError::Catalog(error)) => return Err(error),
                Err(error) => tracing::warn!(%error, "how a copy was is not forgotten"),
            }
        }
        Ok(())
    }
}

impl Shared {
    pub fn new(master: MasterClient, attachment: Attachment, records: DirCatalog, teller: Teller) -> Self {
        let state =
            State { records, term: Term(0), view: View::default(), said: Vec::new(), listed: None, teller };
        Self {
            master,
            attachment,
            claims: tokio::sync::Mutex::default(),
            claiming: tokio::sync::Mutex::default(),
            listed: Notify::new(),
            state: Mutex::new(state),
        }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers what earlier coordinators found bad.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub fn recall_bad(&self) -> Result<(), CatalogError> {
        let mut state = self.state();
        for (key, value) in stores::Records::list(&state.records, BAD_PREFIX)? {
            if let (Some((stripe, index, node)), Ok(bad)) =
                (parse_bad_key(&key), serde_json::from_value(value))
            {
                state.view.set_bad(&stripe, index, node, bad);
            }
        }
        Ok(())
    }

    /// Takes in a listing of everything; `false` if a newer one of some volumes is known.
    ///
    /// # Errors
    /// As [`State::take`].
    pub fn take_all(&self, listing: Listing, asked: Instant) -> Result<bool, CatalogError> {
        let mut state = self.state();
        if state.listed.is_some_and(|listed| asked < listed) {
            return Ok(false);
        }
        state.take(&self.attachment, asked, |view| view.list(listing)).map(|_| true)
    }

    /// Asks for some volumes, and takes in the answer.
    ///
    /// # Errors
    /// Why there is no answer, in words.
    pub async fn refresh(&self, volume: u32) -> Result<(), String> {
        let asked = Instant::now();
        let part = self.master.list_volumes(&[volume]).await.map_err(|error| error.to_string())?;
        let mut state = self.state();
        let taken = state.take(&self.attachment, asked, |view| view.list_some(&[volume], part));
        taken.map(drop).map_err(|error| error.to_string())
    }

    /// Carries out one write of the records.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn record(&self, term: Term, write: &Write) -> Result<Done, StoreError> {
        let mut done = self.state().records.carry_out(term, std::slice::from_ref(write));
        done.pop().expect("one is answered by one")
    }

    /// A node has removed its copy of a block: how that was says nothing of one that it gets later.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be kept; then nothing has changed.
    pub fn forget_bad(&self, term: Term, node: NodeId, block: &BlockId) -> Result<(), StoreError> {
        let Some(shard) = shard_of(block) else { return Ok(()) };
        let (stripe, index) = (StripeId(shard.volume.to_string()), BlockIndex(shard.shard.into()));
        self.set_states(term, &[(stripe, index, node, BlockState::Healthy)])
    }

    /// Notes what was found of copies.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be kept; then nothing has changed.
    pub fn set_states(
        &self,
        term: Term,
        states: &[(StripeId, BlockIndex, NodeId, BlockState)],
    ) -> Result<(), StoreError> {
        let writes: Vec<Write> = states
            .iter()
            .map(|(stripe, index, node, state)| {
                let key = bad_key(stripe, index.0, *node);
                Write::Records(match state {
                    BlockState::Healthy => RecordWrite::Remove(key),
                    bad => RecordWrite::Put(key, bad_value(*bad)),
                })
            })
            .collect();
        let mut shared = self.state();
        shared.records.carry_out(term, &writes).into_iter().try_for_each(|done| done.map(drop))?;
        let mut volumes = BTreeSet::new();
        for (stripe, index, node, state) in states {
            match state {
                BlockState::Healthy => drop(shared.view.clear_bad(stripe, index.0, *node)),
                bad => shared.view.set_bad(stripe, index.0, *node, *bad),
            }
            volumes.extend(shared.view.volume_of(stripe));
        }
        let changes = shared.view.tell(volumes);
        shared.tell(changes);
        Ok(())
    }

    /// A connection to a server that is connected to the master.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub async fn connect(&self, server: &ServerId) -> Result<VolumeServer, String> {
        let address = self.state().view.volumes().servers().get(server).map(|server| server.address.clone());
        let address =
            address.ok_or_else(|| format!("volume server {server} is not connected to the master"))?;
        VolumeServer::connect(&address, &self.attachment.security).await.map_err(|error| error.to_string())
    }
}
