//! Tests of groups of writes in one transaction, and of the fencing of deposed coordinators by terms.

use codes::{BlockIndex, CodeSpec};
use proptest::prelude::*;
use repair::{BlockId, Digest, NodeId, StripeId};
use serde_json::json;
use store_api::{
    Answer, BlockSize, BlockState, Catalog, CatalogError, Done, Fault, FileWrite, Files, OpenError, Origin,
    PutError, PutId, RecordWrite, Records, StoreChange, StoreError, StripeRecord, StripeWrite, Term,
    Transaction, Write,
};
use tempfile::TempDir;

use super::DirCatalog;
use super::engine::Marks;
use super::puts::{LAST_BEGUN, unix_ms};
use super::tables::META;

const CLUSTER: &str = "cluster-1";

fn catalog() -> (TempDir, DirCatalog, Term) {
    let folder = tempfile::tempdir().unwrap();
    let mut catalog = DirCatalog::create(folder.path().join("catalog.redb"), CLUSTER).unwrap();
    catalog.era = super::Era::NONE;
    let term = catalog.begin_term().unwrap();
    (folder, catalog, term)
}

fn begin(name: &str) -> Write {
    let code = CodeSpec::reed_solomon(3, 2);
    Write::Files(FileWrite::BeginPut {
        name: name.into(),
        bytes: 200,
        code,
        size: BlockSize::whole(100),
        replace: false,
    })
}

fn allocate(put: u64) -> Write {
    let nodes = [1, 2, 3].map(NodeId).to_vec();
    Write::Files(FileWrite::Allocate { put: PutId(put), position: 0, size: BlockSize::whole(100), nodes })
}

fn publish(stripe: &str, blocks: u16) -> Write {
    let block =
        |index| (BlockIndex(index), NodeId(u32::from(index) + 1), Some(Digest::of_u32("crc32c-list", 7)));
    let blocks = (0..blocks).map(block).collect();
    Write::Stripes(StripeWrite::Publish { stripe: StripeId(stripe.into()), blocks, origin: Origin::Written })
}

fn commit(put: u64) -> Write {
    Write::Files(FileWrite::CommitPut(PutId(put)))
}

/// Returns everything that is stored, as reported at startup.
fn everything(catalog: &DirCatalog) -> Vec<StoreChange> {
    let mut all = Vec::new();
    catalog.each_stripe(&mut |stripe, pending| all.push(StoreChange::Stripe(stripe, pending))).unwrap();
    catalog.each_file(&mut |change| all.push(change)).unwrap();
    catalog.each_record(&mut |change| all.push(change)).unwrap();
    all
}

#[test]
fn writes_of_a_group_see_the_earlier_ones() {
    let (_folder, mut catalog, term) = catalog();
    let writes = [begin("f"), allocate(1), publish("1", 3), commit(1)];
    let done = catalog.carry_out(term, &writes);
    let Ok(Done { value: Answer::File(file), .. }) = &done[3] else { panic!("{done:?}") };
    assert_eq!(catalog.file("f").unwrap().as_ref(), Some(file));
}

#[test]
fn a_refused_write_does_not_affect_the_rest_of_its_group() {
    let (_folder, mut catalog, term) = catalog();
    let writes = [
        begin("f"),
        allocate(1),
        publish("1", 2),
        commit(1), // One block is not stored, so the commit fails halfway.
        publish("9", 1),
        Write::Records(RecordWrite::Put("repair/1".into(), json!(1))),
        Write::Files(FileWrite::RemoveFile("none".into())),
    ];
    let done = catalog.carry_out(term, &writes);
    assert!(matches!(&done[3], Err(StoreError::Put(PutError::Unpublished { .. }))), "{done:?}");
    assert!(matches!(&done[4], Err(StoreError::Catalog(CatalogError::NoSuchStripe(_)))));
    assert!(matches!(&done[6], Err(StoreError::NoSuchFile(_))));
    assert!([0, 1, 2, 5].iter().all(|&at| done[at].is_ok()), "{done:?}");
    let done = catalog.carry_out(term, &[publish("1", 3), commit(1)]);
    assert!(done.iter().all(Result::is_ok), "the commit that was refused took nothing away: {done:?}");
    assert_eq!(catalog.list("repair/").unwrap().len(), 1);
}

#[test]
fn a_deposed_coordinator_is_fenced() {
    let (folder, mut catalog, old) = catalog();
    let new = catalog.begin_term().unwrap();
    assert!(new > old);
    let put = Write::Records(RecordWrite::Put("repair/1".into(), json!(1)));
    for write in [begin("f"), publish("1", 1), put.clone()] {
        let fenced = StoreError::Fenced { ours: old, newest: new };
        assert_eq!(catalog.carry_out(old, &[write]), [Err(fenced)]);
    }
    let fenced = catalog.write_records(old, &[RecordWrite::Remove("repair/1".into())]);
    assert!(matches!(fenced[..], [Err(StoreError::Fenced { .. })]), "{fenced:?}");
    assert_eq!((catalog.puts().unwrap().len(), catalog.list("").unwrap().len()), (0, 0));
    assert!(catalog.carry_out(new, std::slice::from_ref(&put))[0].is_ok());
    // The term is durable.
    drop(catalog);
    let mut catalog = DirCatalog::open(folder.path().join("catalog.redb"), CLUSTER).unwrap();
    assert!(catalog.carry_out(old, &[put])[0].is_err());
    assert!(catalog.begin_term().unwrap() > new);
}

/// The catalog reports no change of this time, because the coordinator needs none.
#[test]
fn the_time_after_which_later_puts_begin_is_durable() {
    let (folder, mut catalog, term) = catalog();
    let time = unix_ms() + 3_600_000;
    let done = catalog.carry_out(term, &[Write::Files(FileWrite::BeginAfter(time))]);
    assert_eq!(done, [Ok(Done::default())]);
    drop(catalog);
    let catalog = DirCatalog::open(folder.path().join("catalog.redb"), CLUSTER).unwrap();
    assert_eq!(catalog.look(|view| view.get::<_, u64>(META, LAST_BEGUN)).unwrap(), Some(time));
}

/// A commit costs an fsync.
#[test]
fn only_a_group_that_changes_a_record_is_committed() {
    let (_folder, mut catalog, term) = catalog();
    let mark = |catalog: &DirCatalog| catalog.database.mark_found().unwrap();
    let before = mark(&catalog);
    let idle = [
        Write::Records(RecordWrite::Remove("repair/1".into())),
        Write::Records(RecordWrite::Discarded(NodeId(1), BlockId("1.0".into()))),
        Write::Files(FileWrite::BeginAfter(0)),
        Write::Stripes(StripeWrite::Inspect),
    ];
    assert!(catalog.carry_out(term, &idle).iter().all(Result::is_ok));
    assert_eq!(mark(&catalog), before);
    let mut writes = idle.to_vec();
    writes.push(Write::Records(RecordWrite::Put("repair/1".into(), json!(1))));
    assert!(catalog.carry_out(term, &writes).iter().all(Result::is_ok));
    assert!(mark(&catalog) > before);
}

fn write() -> impl Strategy<Value = Write> {
    let name = prop_oneof![Just("f"), Just("g")];
    let node = (1..4u32).prop_map(NodeId);
    let block = || (1..4u64, 0..3u16).prop_map(|(stripe, index)| BlockId(format!("{stripe}.{index}")));
    prop_oneof![
        name.clone().prop_map(begin),
        (1..4u64).prop_map(allocate),
        (1..4u64, 0..4u16).prop_map(|(stripe, blocks)| publish(&stripe.to_string(), blocks)),
        (1..4u64).prop_map(commit),
        (1..4u64).prop_map(|put| Write::Files(FileWrite::AbortPut(PutId(put)))),
        (1..4u64).prop_map(|put| Write::Files(FileWrite::LeavePut(PutId(put)))),
        name.prop_map(|name| Write::Files(FileWrite::RemoveFile(name.into()))),
        (1..4u64, 0..4u16).prop_map(|(stripe, index)| {
            let id = StripeId(stripe.to_string());
            Write::Stripes(StripeWrite::SetStates(vec![(
                id,
                BlockIndex(index),
                NodeId(1),
                BlockState::Missing,
            )]))
        }),
        (node.clone(), block()).prop_map(|(node, block)| Write::Records(RecordWrite::Discard(node, block))),
        (node, block()).prop_map(|(node, block)| Write::Records(RecordWrite::Discarded(node, block))),
    ]
}

/// A minimal model of the stored state, built from changes.
#[derive(Default, Debug, PartialEq)]
struct Told {
    stripes: std::collections::BTreeMap<StripeId, (StripeRecord, bool)>,
    others: std::collections::BTreeMap<String, StoreChange>,
}

impl Told {
    fn take(&mut self, change: StoreChange) {
        let key = match &change {
            StoreChange::Stripe(stripe, pending) => {
                self.stripes.insert(stripe.id.clone(), (stripe.clone(), *pending));
                return;
            }
            StoreChange::StripeGone(id) => return drop(self.stripes.remove(id)),
            StoreChange::File(file) => format!("file {}", file.name),
            StoreChange::FileGone(name) => return drop(self.others.remove(&format!("file {name}"))),
            StoreChange::Put(put) => format!("put {}", put.id),
            StoreChange::PutGone(put) => return drop(self.others.remove(&format!("put {put}"))),
            StoreChange::Discard(node, block) => format!("discard {node} {block}"),
            StoreChange::DiscardGone(node, block) => {
                return drop(self.others.remove(&format!("discard {node} {block}")));
            }
            StoreChange::Counted(_) => "counted".into(),
            StoreChange::Eras(_) => "eras".into(),
            StoreChange::Node(_) | StoreChange::NodeGone(_) => return,
            StoreChange::Service(..)
            | StoreChange::ClaimLost(_)
            | StoreChange::Troubles(_)
            | StoreChange::Unjudged(_)
            | StoreChange::Doubted(_)
            | StoreChange::Remarks(_)
            | StoreChange::FileWorked(_)
            | StoreChange::FileBacklog(_)
            | StoreChange::Needed(_)
            | StoreChange::Maintained(_)
            | StoreChange::LateStripes(_)
            | StoreChange::Unlisted(_)
            | StoreChange::Spoiled { .. } => {
                unreachable!("`dir` says nothing of the kind")
            }
        };
        self.others.insert(key, change);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// The same writes, alone or in any groups, get the same answers and lead to the same stored state,
    /// except for timestamps. The reported changes add up to that state.
    #[test]
    fn grouping_does_not_change_results(
        writes in proptest::collection::vec(write(), 1..25),
        cuts in proptest::collection::vec(1..6usize, 25),
    ) {
        let (_one, mut single, term) = catalog();
        let (_many, mut grouped, _) = catalog();
        let mut alone: Vec<bool> = Vec::new();
        for write in &writes {
            alone.extend(single.carry_out(term, std::slice::from_ref(write)).iter().map(Result::is_ok));
        }
        let (mut together, mut told, mut rest) = (Vec::new(), Told::default(), &writes[..]);
        everything(&grouped).into_iter().for_each(|change| told.take(change));
        for cut in cuts {
            let (group, left) = rest.split_at(cut.min(rest.len()));
            rest = left;
            for done in grouped.carry_out(term, group) {
                together.push(done.is_ok());
                done.into_iter().flat_map(|done| done.changes).for_each(|change| told.take(change));
            }
        }
        prop_assert_eq!(alone, together);
        let mut stored = Told::default();
        everything(&grouped).into_iter().for_each(|change| stored.take(change));
        prop_assert_eq!(&told, &stored);
        let names = |catalog: &DirCatalog| {
            let mut stripes = Vec::new();
            catalog.each_stripe(&mut |stripe, pending| stripes.push((stripe.id, stripe.blocks, pending))).unwrap();
            (stripes, catalog.files("").unwrap().len())
        };
        prop_assert_eq!(names(&single), names(&grouped));
    }
}

/// Sets the catalog's state as if its last commit had failed and might be durable (with the answers `done`),
/// and closes the catalog.
fn fail_after(catalog: &mut DirCatalog, known: u64, tried: u64, done: Vec<Done>) {
    catalog.database.marks = Marks::from(known);
    while catalog.database.marks.next() < tried {}
    catalog.database.marks.failed(tried, true);
    catalog.database.in_doubt = Some(done);
    let (place, fault) = ("catalog.redb".to_owned(), Fault::Io(std::io::ErrorKind::StorageFull));
    let error = CatalogError::Storage { place, fault, detail: "no space".into() };
    assert!(catalog.database.close_after(&StoreError::Catalog(error)));
}

#[test]
fn a_commit_in_doubt_is_reported_after_reopening_if_it_is_durable() {
    let (_folder, mut catalog, term) = catalog();
    let known = catalog.database.mark_found().unwrap();
    let done = catalog.carry_out(term, &[begin("a")]).remove(0).unwrap();
    let all = everything(&catalog);
    let tried = catalog.database.mark_found().unwrap();
    fail_after(&mut catalog, known, tried, vec![done.clone()]);
    assert!(catalog.carry_out(term, &[begin("b")])[0].is_err(), "it is closed until it is recovered");
    assert_eq!(catalog.recover(term).unwrap(), done.changes);
    assert_eq!(catalog.recover(term).unwrap(), [], "told once");
    assert_eq!(everything(&catalog), all);
    catalog.carry_out(term, &[begin("b")]).remove(0).unwrap();

    // A commit that never reached the disk has no effect.
    let known = catalog.database.mark_found().unwrap();
    let all = everything(&catalog);
    fail_after(&mut catalog, known, known + 1, vec![done]);
    assert_eq!(catalog.recover(term).unwrap(), []);
    assert_eq!(everything(&catalog), all);
    catalog.carry_out(term, &[begin("c")]).remove(0).unwrap();
}

#[test]
fn a_catalog_replaced_during_a_fault_is_refused_permanently() {
    let (folder, mut catalog, term) = catalog();
    let path = folder.path().join("catalog.redb");
    catalog.snapshot().unwrap().write(&folder.path().join("copy")).unwrap();
    catalog.carry_out(term, &[begin("a")]).remove(0).unwrap();
    let known = catalog.database.mark_found().unwrap();
    fail_after(&mut catalog, known, known + 1, Vec::new());
    let kept = std::fs::read(&path).unwrap();
    std::fs::copy(folder.path().join("copy"), &path).unwrap();
    let refused = catalog.recover(term).unwrap_err();
    assert!(matches!(refused, OpenError::Changed { .. }) && !refused.is_passing(), "{refused}");
    // A higher term means that another coordinator has taken over.
    std::fs::write(&path, kept).unwrap();
    DirCatalog::open(&path, CLUSTER).unwrap().begin_term().unwrap();
    let refused = catalog.recover(term).unwrap_err();
    assert!(matches!(refused, OpenError::TakenOver { .. }) && !refused.is_passing(), "{refused}");
}
