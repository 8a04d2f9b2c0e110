//! Implements the traits `Catalog`, `Files` and `Records` for [`DirCatalog`]. Each write here is a
//! transaction of its own; [`Transaction`] combines several writes into one.

use repair::{BlockId, NodeId};
use serde_json::Value;
use store_api::{
    Catalog, CatalogError, Done, FileRecord, FileWrite, Files, NodeRecord, OpenError, PutRecord, RecordWrite,
    Records, Snapshot, StoreChange, StoreError, StripeRecord, StripeWrite, Term, Transaction, Write,
};

use super::DirCatalog;
use super::eras::{ERAS, begin_era};
use super::group::TERM;
use super::stripes::NEXT_STRIPE;
use super::tables::{DISCARDS, FILES, META, NODES, PUTS};

impl Catalog for DirCatalog {
    fn each_stripe(&self, visit: &mut dyn FnMut(StripeRecord, bool)) -> Result<(), CatalogError> {
        self.visit_stripes(visit)
    }

    fn write_stripes(&mut self, term: Term, write: &StripeWrite) -> Result<Done, StoreError> {
        self.carry_out_one(term, Write::Stripes(write.clone()))
    }
}

impl Files for DirCatalog {
    fn each_file(&self, visit: &mut dyn FnMut(StoreChange)) -> Result<(), CatalogError> {
        self.look(|view| {
            view.each(FILES, "".., |_, file: FileRecord| visit(StoreChange::File(file)))?;
            view.each(PUTS, 0.., |_, put: PutRecord| visit(StoreChange::Put(put)))?;
            visit(StoreChange::Counted(view.get(META, NEXT_STRIPE)?.unwrap_or(1)));
            Ok(())
        })
    }

    fn write_files(&mut self, term: Term, write: &FileWrite) -> Result<Done, StoreError> {
        self.carry_out_one(term, Write::Files(write.clone()))
    }
}

impl Records for DirCatalog {
    fn begin_term(&mut self) -> Result<Term, CatalogError> {
        let era = self.era;
        self.change(|change| {
            let last: Term = change.get(META, TERM)?.unwrap_or(Term(0));
            let term = Term(last.0 + 1);
            change.put(META, TERM, &term)?;
            begin_era(change, era)?;
            Ok(term)
        })
    }

    fn check_term(&self, term: Term) -> Result<(), StoreError> {
        self.database.check_term(term)
    }

    fn number_node(&mut self, name: &str) -> Result<NodeRecord, CatalogError> {
        let id = self.node_id(name)?;
        let record = self.look(|view| view.get(NODES, id.0))?;
        Ok(record.expect("a node that has a number has a record"))
    }

    fn each_record(&self, visit: &mut dyn FnMut(StoreChange)) -> Result<(), CatalogError> {
        self.look(|view| {
            view.each(NODES, 0.., |_, node: NodeRecord| visit(StoreChange::Node(node)))?;
            view.each(DISCARDS, (0, "").., |(node, block), ()| {
                visit(StoreChange::Discard(NodeId(node), BlockId(block.to_owned())));
            })?;
            visit(StoreChange::Eras(view.get(META, ERAS)?.unwrap_or_default()));
            Ok(())
        })
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, Value)>, CatalogError> {
        self.queue_list(prefix)
    }

    fn write_records(&mut self, term: Term, writes: &[RecordWrite]) -> Vec<Result<Done, StoreError>> {
        let writes: Vec<Write> = writes.iter().cloned().map(Write::Records).collect();
        if writes.is_empty() { Vec::new() } else { self.carry_out(term, &writes) }
    }

    fn recover(&mut self, term: Term) -> Result<Vec<StoreChange>, OpenError> {
        self.database.reopen_if_failed(term)
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>, CatalogError> {
        Ok(Box::new(Self::snapshot(self)?))
    }
}
