//! Tests of what is listed again and when. A shell script plays the part of the JVM.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use codes::BlockIndex;
use dir::DirCatalog;
use hdfs_raid::Codec;
use repair::{NodeId, StripeId};
use store_api::{
    Answer, BlockState, Done, NodeRecord, Origin, RecordWrite, SharedRecords, Storage, StoreChange,
    StoreError, StripeWrite, Term, Write,
};
use tempfile::TempDir;

use crate::{Attachment, BlockTerms, ChecksumFormat, ChecksumKind, NameNodeSettings};

mod raided;

/// Answers queries. Files in the script's folder decide what the NameNode's answers are like. `homes-N` has
/// the holders of the blocks of the only group of file N, `stamp` the generation stamp of all groups,
/// `format` that of their checksums; `leaving-N` decommissions DataNode N, `maintained-N` puts it into maintenance, `dead-N`
/// lets it be dead, `unreported-N` lets it have sent no block report, `no-WORD` makes queries of this kind fail, and
/// `unanswered-WORD` leaves them unanswered. `raided` has the lines about raided files and their parity, and files named like questions
/// for blocks have the answers to these questions, if they differ. `edit` has an event that is told once. `busy` has the end of an edit log that
/// becomes longer whenever it is read.
const SCRIPT: &str = r#"#!/bin/sh
cd "$(dirname "$0")"
nodes() {
    for node in 0 1 2 3 4; do
        service=normal reported=1 state=live
        if [ -e "leaving-$node" ]; then service=leaving; fi
        if [ -e "maintained-$node" ]; then service=maintenance; fi
        if [ -e "unreported-$node" ]; then reported=0; fi
        if [ -e "dead-$node" ]; then state=dead; fi
        echo "$number n $node uuid-$node 10.0.0.$node:9866"
        echo "$number d $node /rack $state $service $reported"
    done
}
group() {
    if [ -e "homes-$1" ]; then
        stamp=1001
        if [ -e stamp ]; then stamp=$(cat stamp); fi
        echo "$number g $1 0 -$((16 * $1)) $stamp 3000000 RS-3-2-1024k old $(cat "homes-$1")"
    fi
}
echo '0 ready 9'
while read -r number word rest; do
    file=${rest%% *}
    if [ -e "unanswered-$word" ]; then echo "$word" >>unanswered; continue; fi
    if [ -e "no-$word" ] || [ -e "no-$word-$file" ]; then echo "$number failed no permission"; continue; fi
    case $word in
        list)
            echo listed >>lists
            if [ -e large ]; then awk -v "number=$number" -f list.awk; fi
            if [ -e absent ]; then echo "$number missing %2F"; fi
            if [ -e homes-7 ]; then
                nodes
                echo "$number f %2F"
                for file in 7 8 9; do
                    if [ -e "homes-$file" ]; then echo "$number i $file name-$file closed"; group "$file"; fi
                done
            fi ;;
        raided | blocks)
            nodes
            if [ -e "$word $rest" ]; then sed "s/^/$number /" "$word $rest"; else sed "s/^/$number /" raided; fi ;;
        nodes) if [ -e homes-7 ]; then nodes; fi ;;
        group) nodes; group "$file" ;;
        touch | report) echo "$word $rest" >>reports ;;
        checksum) if [ -e format ]; then echo "$number h $(cat format)"; fi; echo "$rest" >>formats ;;
        missing) if [ -e absent ]; then echo "$number missing %2F"; fi ;;
        position)
            if [ -e router ]; then echo "$number failed no such call"; continue; fi
            if [ -e busy ]; then echo "$number e $(cat busy)"; else echo "$number e 5"; fi ;;
        edits)
            if [ -e busy ]; then
                next=$((rest + 1)); echo "$next" >busy; echo "$number e $next"; echo "$number done"; continue
            fi
            if [ -e closed ]; then rm closed; echo "$number m %2Ff"; fi
            if [ -e touched ]; then rm touched; echo "$number z %2Fraid%2Ff"; fi
            if [ -e edit ]; then echo "$number $(cat edit)"; rm edit; fi
            if [ -e purged ]; then rm purged; echo "$number gap 9"; else echo "$number e 5"; fi ;;
        counts)
            if [ -e many ]; then echo "$number l 1 0 0 20000"
            elif [ -e counts ]; then echo "$number l $(cat counts)"
            else echo "$number l 0 0 0 0"; fi ;;
        others) if [ -e others ]; then echo "$number o $(cat others)"; fi ;;
        lost) if [ -e lost-files ]; then sed "s/^/$number lost /" lost-files; fi ;;
        losses) echo read >>reads; if [ -e lost ]; then sed "s/^/$number q /" lost; fi ;;
    esac
    echo "$number done"
done
"#;

/// All blocks of a group of five.
const WHOLE: &str = "0:0,1:1,2:2,3:3,4:4";

/// Lists 10,000 groups of five blocks, in 5,000 files of 50 folders.
const LIST: &str = r#"BEGIN {
    for (node = 0; node < 5; node++) {
        print number, "n", node, "uuid-" node, "10.0.0." node ":9866"
        print number, "d", node, "/rack live normal 1"
    }
    for (group = 1; group <= 10000; group++) {
        file = 16386 + int(group / 2)
        if (group % 200 == 1) print number, "f %2Ffolder-" int(group / 200)
        if (group % 2 == 1) print number, "i", file, "name-" file, "closed"
        print number, "g", file, "0", -16 * group, "1001 3000000 RS-3-2-1024k old 0:0,1:1,2:2,3:3,4:4"
    }
}"#;

/// Opens the records. Tasks of an earlier storage over the same records may not have ended yet.
fn open_records(path: &Path) -> DirCatalog {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        match DirCatalog::open(path, "a-cluster") {
            Ok(records) => return records,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// HDFS-RAID's codecs, and two with two data blocks in a stripe: over files, and over folders.
fn codecs() -> Vec<Codec> {
    let code = |name: &str| name.parse().expect("a code");
    let small = Codec::new("small", code("xor-3-2"), "/small", hdfs_raid::Scope::File);
    let folders = Codec::new("folders", code("rs-4-2"), "/folders", hdfs_raid::Scope::Folder);
    Codec::hdfs_raid().into_iter().chain([small, folders]).collect()
}

struct Script {
    folder: TempDir,
    remarks: Arc<Mutex<Vec<String>>>,
    troubles: Arc<Mutex<Vec<String>>>,
    unjudged: Arc<Mutex<Vec<String>>>,
    /// The stripes that were last reported with a lost block.
    damaged: Arc<Mutex<BTreeSet<String>>>,
    /// The reports that stripes are late, and that the first listing has ended.
    news: Arc<Mutex<Vec<StoreChange>>>,
    stripes: Arc<AtomicUsize>,
    storage: Storage,
    term: Term,
}

impl Script {
    /// Opens a storage whose NameNode has these properties.
    fn open(properties: &[&str]) -> Self {
        let properties: Vec<(&str, &str)> = properties.iter().map(|&name| (name, "")).collect();
        Self::open_with(&properties)
    }

    /// Opens a storage whose NameNode has these properties, given by file and content.
    fn open_with(properties: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        properties.iter().for_each(|(name, text)| fs::write(path(name), text).expect("written"));
        fs::write(path("text"), SCRIPT).expect("written");
        fs::write(path("list.awk"), LIST).expect("written");
        // A separate process writes the script, see the tests of `namenode`.
        let mut install = std::process::Command::new("install");
        let installed = install.args(["-m", "755"]).args([path("text"), path("java")]).status();
        assert!(installed.is_ok_and(|status| status.success()));
        drop(DirCatalog::create(path("records"), "a-cluster").expect("created"));
        Self::over(folder)
    }

    /// Opens a storage over the records in this folder.
    fn over(folder: TempDir) -> Self {
        let path = |name: &str| folder.path().join(name);
        let namenode = NameNodeSettings {
            java: path("java"),
            classpath: "x".to_owned(),
            uri: None,
            settings: Vec::new(),
        };
        let attachment = Attachment {
            namenode: Some(namenode),
            paths: vec!["/".to_owned()],
            helpers: BTreeMap::new(),
            folders: BTreeMap::new(),
            raid: if path("raided").exists() { codecs() } else { Vec::new() },
            encoding: None,
            pushes: false,
        };
        let records: SharedRecords = Arc::new(Mutex::new(open_records(&path("records"))));
        let mut storage = crate::open(attachment, records).expect("attached");
        let term = storage.begin_term().expect("begun");
        let lines = || Arc::new(Mutex::new(Vec::new()));
        let (remarks, troubles, unjudged) = (lines(), lines(), lines());
        let (damaged, stripes) = (Arc::new(Mutex::new(BTreeSet::new())), Arc::new(AtomicUsize::new(0)));
        let noted = [&remarks, &troubles, &unjudged].map(Arc::clone);
        let news = Arc::new(Mutex::new(Vec::new()));
        let (marked, told, counted) = (Arc::clone(&damaged), Arc::clone(&news), Arc::clone(&stripes));
        storage.listen(Box::new(move |changes| {
            let set = |at: usize, lines: Vec<String>| *noted[at].lock().expect("whole") = lines;
            for change in changes {
                match change {
                    StoreChange::Remarks(lines) => set(0, lines),
                    StoreChange::Troubles(lines) => set(1, lines),
                    StoreChange::Unjudged(all) => {
                        set(2, all.into_iter().map(|it| format!("{}: {}", it.stripe, it.why)).collect());
                    }
                    StoreChange::Stripe(stripe, _) => {
                        let is_whole = stripe.blocks.iter().all(|block| block.state == BlockState::Healthy);
                        let mut damaged = marked.lock().expect("whole");
                        match is_whole {
                            true => damaged.remove(&stripe.id.0),
                            false => damaged.insert(stripe.id.0),
                        };
                        counted.fetch_add(1, Ordering::Relaxed);
                    }
                    StoreChange::LateStripes(_) | StoreChange::Unlisted(None) => {
                        told.lock().expect("whole").push(change);
                    }
                    _ => {}
                }
            }
        }));
        Self { folder, remarks, troubles, unjudged, damaged, news, stripes, storage, term }
    }

    /// Closes the storage, and opens another one over the same records.
    fn restarted(self) -> Self {
        let Self { folder, storage, .. } = self;
        drop(storage);
        Self::over(folder)
    }

    /// Waits until the store has reported a stripe. Returns the DataNodes' numbers.
    fn await_nodes(&mut self) -> [NodeId; 5] {
        self.await_that("a group", |script| script.stripes.load(Ordering::Relaxed) >= 1);
        let nodes = self.nodes();
        [0, 1, 2, 3, 4].map(|node| nodes[&format!("10.0.0.{node}:9866")])
    }

    /// Returns the numbers of the registered nodes by name.
    fn nodes(&self) -> BTreeMap<String, NodeId> {
        let mut nodes = BTreeMap::new();
        let mut visit = |change: StoreChange| {
            if let StoreChange::Node(NodeRecord { id, name, .. }) = change {
                nodes.insert(name, id);
            }
        };
        self.storage.each_record(&mut visit).expect("read");
        nodes
    }

    fn write(&mut self, write: StripeWrite) -> Result<Done, StoreError> {
        self.storage.carry_out(self.term, &[Write::Stripes(write)]).remove(0)
    }

    /// Claims blocks of the group of file 7 for this DataNode.
    fn claim(&mut self, stamp: u64, node: NodeId, blocks: &[u16]) -> Result<Done, StoreError> {
        let stripe = StripeId(format!("group_-112_{stamp}"));
        let blocks = blocks.iter().copied().map(BlockIndex).collect();
        self.write(StripeWrite::Claim { stripe, nodes: vec![node], blocks })
    }

    /// Claims blocks like [`claim`](Self::claim), again and again until the claim is granted.
    fn await_claim(&mut self, stamp: u64, node: NodeId, blocks: &[u16]) {
        let end = Instant::now() + Duration::from_secs(60);
        while let Err(error) = self.claim(stamp, node, blocks) {
            assert!(Instant::now() < end, "{error}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits in vain for the NameNode to list block 3 of the group of file 7 on this DataNode.
    fn publish_in_vain(&mut self, node: NodeId) {
        let done = self.write(publication(node));
        assert!(matches!(done, Err(StoreError::NotServed { .. })), "{done:?}");
    }

    /// The lines of a file that the script has written.
    fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Writes a file, so that the script reads it either as before or as a whole.
    fn set(&self, name: &str, text: &str) {
        fs::write(self.path("unfinished"), text).expect("written");
        fs::rename(self.path("unfinished"), self.path(name)).expect("renamed");
    }

    /// Has the NameNode list block 3 of file 7's group as lost.
    fn lose_block_of_7(&self) {
        self.set("homes-7", "0:0,1:1,2:2,4:4");
        self.set("lost", "-112 4\n");
        self.set("counts", "1 0 0 0");
    }

    fn unset(&self, name: &str) {
        fs::remove_file(self.path(name)).expect("removed");
    }

    fn await_that(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !is_so(self) {
            let state = (&self.remarks, &self.troubles, &self.unjudged, &self.damaged);
            assert!(Instant::now() < end, "{what}: {state:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until the stripes with lost blocks are those of the groups of these files.
    fn await_damaged(&self, files: &[i64]) {
        let stripes: BTreeSet<String> =
            files.iter().map(|file| format!("group_{}_1001", -16 * file)).collect();
        self.await_that("damage", |script| *script.damaged.lock().expect("whole") == stripes);
    }

    fn troubles(&self) -> String {
        self.troubles.lock().expect("whole").join("\n")
    }

    fn unjudged(&self) -> String {
        self.unjudged.lock().expect("whole").join("\n")
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        Path::new(self.folder.path()).join(name)
    }

    /// How often all files were listed.
    fn lists(&self) -> usize {
        fs::read_to_string(self.path("lists")).unwrap_or_default().lines().count()
    }

    fn await_lists(&self, least: usize) {
        let end = Instant::now() + Duration::from_secs(60);
        while self.lists() < least {
            assert!(Instant::now() < end, "{} listings, {:?}", self.lists(), self.remarks);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn remarks(&self) -> String {
        self.remarks.lock().expect("whole").join("\n")
    }
}

/// The write of block 3 of the group of file 7 on this DataNode.
fn publication(node: NodeId) -> StripeWrite {
    StripeWrite::Publish {
        stripe: StripeId("group_-112_1001".to_owned()),
        blocks: vec![(BlockIndex(3), node, None)],
        origin: Origin::Written,
    }
}

/// Otherwise the coordinator would take the group for a new one, which no lost record of a wrong block can concern.
#[test]
fn groups_that_wait_for_block_reports_are_late_before_the_first_listing_ends() {
    let script = Script::open_with(&[("homes-7", "0:0,1:1,2:2,3:3"), ("unreported-4", "")]);
    let news = || script.news.lock().expect("whole").clone();
    script.await_that("the first listing", |_| news().contains(&StoreChange::Unlisted(None)));
    assert_eq!(news(), [StoreChange::LateStripes(true), StoreChange::Unlisted(None)]);
    assert_eq!(script.stripes.load(Ordering::Relaxed), 0);
}

#[test]
fn a_long_listing_is_recorded_in_parts() {
    let script = Script::open(&["large"]);
    let end = Instant::now() + Duration::from_secs(60);
    while script.stripes.load(Ordering::Relaxed) < 10_000 {
        assert!(Instant::now() < end, "{} stripes", script.stripes.load(Ordering::Relaxed));
        std::thread::sleep(Duration::from_millis(50));
    }
    fs::write(script.path("purged"), "").expect("written");
    script.await_lists(2);
    std::thread::sleep(super::FOLLOW_EVERY * 3);
    assert_eq!(script.stripes.load(Ordering::Relaxed), 10_000, "none is reported again");
}

#[test]
fn missing_edits_cause_one_listing() {
    let script = Script::open(&[]);
    script.await_lists(1);
    std::thread::sleep(super::LIST_EVERY * 2);
    assert_eq!(script.lists(), 1);
    fs::write(script.path("purged"), "").expect("written");
    script.await_lists(2);
    std::thread::sleep(super::LIST_EVERY * 2);
    assert_eq!((script.lists(), script.remarks().as_str()), (2, ""));
}

#[test]
fn losses_become_known_while_clients_never_stop_changing_files() {
    let script = Script::open_with(&[("busy", "5"), ("homes-7", WHOLE)]);
    script.await_that("a group", |script| script.stripes.load(Ordering::Relaxed) >= 1);
    script.lose_block_of_7();
    script.await_damaged(&[7]);
    assert_eq!(script.lists(), 1);
}

/// A walk through a large folder that was moved, or a listing of all files, takes long.
#[test]
fn losses_become_known_while_a_query_for_files_or_a_listing_is_not_answered() {
    for (query, event) in [("walk", "closed"), ("list", "purged")] {
        let script = Script::open_with(&[("homes-7", WHOLE)]);
        script.await_that("a group", |script| script.stripes.load(Ordering::Relaxed) >= 1);
        script.set(&format!("unanswered-{query}"), "");
        script.set(event, "");
        script.await_that("the query", |script| script.lines("unanswered") == [query]);
        script.lose_block_of_7();
        script.await_damaged(&[7]);
        assert_eq!(script.lists(), 1);
    }
}

#[test]
fn a_block_on_a_datanode_in_maintenance_is_lost_only_if_the_lists_name_its_group() {
    let script =
        Script::open_with(&[("homes-7", "0:0,1:1,2:2,3:3"), ("homes-8", WHOLE), ("maintained-4", "")]);
    script.await_that("both groups", |script| script.stripes.load(Ordering::Relaxed) >= 2);
    std::thread::sleep(super::FOLLOW_EVERY * 3);
    script.await_damaged(&[]);
    script.set("lost", "-112 4\n");
    script.set("counts", "1 0 0 0");
    script.await_damaged(&[7]);
}

#[test]
fn a_block_on_a_datanode_in_maintenance_is_lost_while_the_lists_are_too_long() {
    let unlisted = ("homes-7", "0:0,1:1,2:2,3:3");
    let script = Script::open_with(&[unlisted, ("homes-8", WHOLE), ("maintained-4", ""), ("many", "")]);
    script.await_damaged(&[7]);
    script.unset("many");
    script.await_damaged(&[]);
    script.set("many", "");
    script.await_damaged(&[7]);
}

#[test]
fn without_the_edit_log_all_files_are_listed_again_and_again() {
    let script = Script::open(&["router"]);
    script.await_lists(3);
    assert!(
        script.remarks().contains("edit log of HDFS cannot be followed: cannot query"),
        "{}",
        script.remarks()
    );
}

#[test]
fn while_lists_of_losses_are_long_all_files_are_listed_again_and_again() {
    let script = Script::open(&["many"]);
    script.await_lists(3);
    assert!(script.remarks().contains("cannot be read: they have 20001 blocks"), "{}", script.remarks());
    fs::remove_file(script.path("many")).expect("removed");
    let before = script.lists();
    script.await_lists(before + 1); // Losses may have come and gone.
    std::thread::sleep(super::LIST_EVERY * 2);
    let lists = script.lists();
    std::thread::sleep(super::LIST_EVERY * 2);
    assert_eq!((script.lists(), script.remarks().as_str()), (lists, ""));
}

#[test]
fn a_trouble_with_the_edit_log_ends_when_it_is_read_again() {
    let script = Script::open(&[]);
    script.await_lists(1);
    script.set("no-edits", "");
    script.await_that("a trouble", |script| script.troubles().contains("cannot read the edit log of HDFS"));
    script.set("no-walk", "");
    script.set("closed", "");
    script.unset("no-edits");
    script.await_that("another trouble", |script| {
        let troubles = script.troubles();
        troubles.contains("cannot query files of HDFS that have changed") && !troubles.contains("edit log")
    });
    script.unset("no-walk");
    script.await_that("no trouble", |script| script.troubles().is_empty());
    script.set("no-edits", "");
    script.await_that("a trouble", |script| !script.troubles().is_empty());
    // From now on, files are known by listings only.
    script.set("router", "");
    script.set("purged", "");
    script.unset("no-edits");
    script.await_that("a remark", |script| script.remarks().contains("edit log of HDFS cannot be followed"));
    assert_eq!(script.troubles(), "");
}

#[test]
fn a_folder_that_does_not_exist_causes_one_listing_once_it_does() {
    let script = Script::open(&["absent"]);
    script.await_lists(1);
    std::thread::sleep(super::LIST_EVERY * 3);
    assert_eq!(script.lists(), 1);
    assert!(script.troubles().contains("HDFS has no folder /,"), "{}", script.troubles());
    script.unset("absent");
    script.await_lists(2);
    script.await_that("no trouble", |script| script.troubles().is_empty());
    std::thread::sleep(super::LIST_EVERY * 2);
    assert_eq!(script.lists(), 2);
}

#[test]
fn without_lists_of_losses_a_group_with_corrupt_replicas_is_not_judged() {
    let corrupt = format!("{WHOLE} corrupt");
    let script = Script::open_with(&[("homes-7", corrupt.as_str()), ("homes-8", WHOLE), ("no-losses", "")]);
    script.await_that("doubt", |script| script.unjudged().starts_with("group_-112_1001: too few"));
    let remark = "lists of blocks that lack redundancy cannot be read";
    script.await_that("a remark", |script| script.remarks().contains(remark));
    script.set("lost", "-112 3 10.0.0.1:9866,10.0.0.3:9866\n");
    script.unset("no-losses");
    script.await_that("no doubt", |script| script.unjudged().is_empty());
    script.await_damaged(&[7]);
}

/// The group may have other corrupt replicas since.
#[test]
fn a_group_with_corrupt_replicas_is_not_judged_by_former_lists() {
    let corrupt = format!("{WHOLE} corrupt");
    let named = "-112 3 10.0.0.1:9866,10.0.0.3:9866\n";
    let script = Script::open_with(&[("homes-7", corrupt.as_str()), ("lost", named), ("counts", "1 0 1 0")]);
    script.await_damaged(&[7]);
    assert_eq!(script.unjudged(), "");
    script.set("many", "");
    script.await_that("doubt", |script| script.unjudged().starts_with("group_-112_1001: too few"));
}

#[test]
fn lists_of_losses_are_not_written_while_other_lists_are_long() {
    for (others, text) in [("0 40 99961", "99961 that are waiting"), ("10001 0 0", "10001 postponed")] {
        let script = Script::open_with(&[("others", others)]);
        script.await_that("a remark", |script| script.remarks().contains(text));
        std::thread::sleep(super::FOLLOW_EVERY * 3);
        assert!(!script.path("reads").exists(), "they were written");
        script.set("others", "10000 40 99960");
        script.await_that("no remark", |script| script.remarks().is_empty());
        assert!(script.path("reads").exists());
    }
}

#[test]
fn a_group_whose_query_fails_hides_no_other_losses() {
    let script = Script::open_with(&[("homes-7", WHOLE), ("homes-8", WHOLE), ("homes-9", WHOLE)]);
    script.await_that("all groups", |script| script.stripes.load(Ordering::Relaxed) >= 3);
    let lose = |files: &[i64]| {
        let lost: String = files.iter().map(|file| format!("{} 4\n", -16 * file)).collect();
        files.iter().for_each(|file| script.set(&format!("homes-{file}"), "0:0,1:1,2:2,3:3"));
        script.set("lost", &lost);
        script.set("counts", &format!("{} 0 0 0", files.len()));
    };
    script.set("no-group-7", "");
    lose(&[7, 8]);
    script.await_damaged(&[8]);
    lose(&[7, 8, 9]); // Only the query that fails is left by now.
    script.await_damaged(&[8, 9]);
    script.unset("no-group-7");
    script.await_damaged(&[7, 8, 9]);
    assert_eq!(script.lists(), 1, "no listing was needed");
}

#[test]
fn a_datanode_whose_new_block_is_not_listed_reports_all_blocks() {
    // The NameNode still lists block 4 on node 4, so it ignores block 3 there.
    let mut script = Script::open_with(&[("homes-7", "0:0,1:1,2:2,4:4")]);
    let target = script.await_nodes()[4];
    script.publish_in_vain(target);
    script.await_that("a report", |script| script.lines("reports").len() == 2);
    assert_eq!(script.lines("reports"), ["touch 7 0 10.0.0.4:9866", "report 10.0.0.4:9866"]);
}

/// The DataNode reports the removal of a bad replica after the NameNode has listed the new one there.
#[test]
fn a_replica_that_has_replaced_a_bad_one_is_reported_if_the_namenode_forgets_it() {
    let mut script = Script::open_with(&[("homes-7", WHOLE)]);
    let target = script.await_nodes()[3];
    let stripe = StripeId("group_-112_1001".to_owned());
    let states = vec![(stripe, BlockIndex(3), target, BlockState::Corrupt)];
    script.write(StripeWrite::SetStates(states)).expect("recorded");
    script.write(publication(target)).expect("the old replica is listed");
    script.set("homes-7", "0:0,1:1,2:2,4:4");
    let report = "report 10.0.0.3:9866".to_owned();
    script.await_that("a report", |script| script.lines("reports").contains(&report));
}

#[test]
fn a_report_that_is_wanted_outlasts_the_coordinator() {
    let mut script = Script::open_with(&[("homes-7", "0:0,1:1,2:2,4:4"), ("no-report", "")]);
    let target = script.await_nodes()[4];
    script.publish_in_vain(target);
    script.await_that("an attempt", |script| !script.lines("reports").is_empty());
    let script = script.restarted();
    script.unset("no-report");
    let report = "report 10.0.0.4:9866".to_owned();
    script.await_that("a report", |script| script.lines("reports").contains(&report));
    // It is wanted no longer, once the answer has been recorded.
    std::thread::sleep(Duration::from_secs(2));
    let script = script.restarted();
    script.await_that("a group", |script| script.stripes.load(Ordering::Relaxed) >= 1);
    std::thread::sleep(super::FOLLOW_EVERY * 4);
    assert_eq!(script.lines("reports").iter().filter(|line| **line == report).count(), 1);
}

/// The coordinator ends while it waits for the NameNode to list a block.
#[test]
fn a_block_that_is_not_listed_when_the_coordinator_ends_is_reported() {
    let mut script = Script::open_with(&[("homes-7", "0:0,1:1,2:2,4:4")]);
    let target = script.await_nodes()[4];
    let write = Write::Stripes(publication(target));
    assert!(script.storage.begin(script.term, &write, Box::new(|_| {})).is_none(), "it is being carried out");
    std::thread::sleep(Duration::from_secs(3));
    let script = script.restarted();
    let report = "report 10.0.0.4:9866".to_owned();
    script.await_that("a report", |script| script.lines("reports").contains(&report));
}

fn formats_of(claimed: &Done) -> Vec<Option<ChecksumFormat>> {
    let Answer::Claimed(permits) = &claimed.value else { panic!("{claimed:?}") };
    permits.iter().map(|(_, permit)| BlockTerms::of(Some(permit)).checksums).collect()
}

#[test]
fn formats_are_asked_for_ahead_of_claims_and_once_for_each_generation() {
    let mut script = Script::open_with(&[("homes-7", WHOLE), ("format", "crc32/1024")]);
    let nodes = script.await_nodes();
    assert!(script.lines("formats").is_empty(), "nothing is lost");
    script.set("homes-7", "0:0,1:1,2:2,3:3");
    script.set("lost", "-112 4\n");
    script.set("counts", "1 0 0 0");
    script.await_damaged(&[7]);
    script.await_that("a question", |script| script.lines("formats").len() == 1);
    std::thread::sleep(Duration::from_secs(1)); // The answer takes a moment.
    let format = ChecksumFormat::new(ChecksumKind::Crc32, 1024);
    for _ in 0..2 {
        let claimed = script.claim(1001, nodes[4], &[4]).expect("granted");
        assert_eq!(formats_of(&claimed), [format]);
    }
    assert_eq!(script.lines("formats"), ["7 0"], "no claim has asked");
    // The group is written again.
    script.set("format", "crc32c/512");
    script.set("stamp", "1002");
    assert!(script.claim(1001, nodes[4], &[4]).is_err(), "it has another generation stamp");
    let again = "group_-112_1002".to_owned();
    script.await_that("the group", |script| script.damaged.lock().expect("whole").contains(&again));
    let claimed = script.claim(1002, nodes[4], &[4]).expect("granted");
    assert_eq!(formats_of(&claimed), [Some(ChecksumFormat::default())]);
}

#[test]
fn a_claim_names_the_datanode_that_has_another_block_of_the_group() {
    let mut script = Script::open_with(&[("homes-7", "0:0,1:1,2:2,3:3")]);
    let nodes = script.await_nodes();
    match script.claim(1001, nodes[0], &[4]) {
        Err(StoreError::Unfit { node, server, .. }) => {
            assert_eq!((node, server.as_str()), (nodes[0], "DataNode 10.0.0.0:9866"));
        }
        other => panic!("{other:?}"),
    }
    script.claim(1001, nodes[4], &[4]).expect("granted");
}

#[test]
fn two_blocks_of_a_group_on_one_datanode_are_reported() {
    let script = Script::open_with(&[("homes-7", "0:0,1:1,2:2,3:3,4:3")]);
    script.await_that("a remark", |script| script.remarks().contains("group_-112_1001 on 10.0.0.3:9866;"));
    script.set("homes-7", WHOLE);
    script.set("purged", "");
    script.await_that("no remark", |script| script.remarks().is_empty());
}

/// The NameNode lists a dead DataNode until it is restarted.
#[test]
fn a_datanode_whose_node_was_removed_is_a_new_node_once_it_is_live() {
    let mut script = Script::open_with(&[("homes-7", "0:0,1:1,2:2,3:3")]);
    let (removed, name) = (script.await_nodes()[4], "10.0.0.4:9866");
    script.set("dead-4", "");
    std::thread::sleep(Duration::from_secs(3)); // The DataNodes are queried in the meantime.
    let write = Write::Records(RecordWrite::ForgetNode(removed));
    let done = script.storage.carry_out(script.term, &[write]).remove(0);
    done.expect("removed");
    std::thread::sleep(Duration::from_secs(3));
    assert!(!script.nodes().contains_key(name), "a dead DataNode has brought its node back");
    script.unset("dead-4");
    script.await_that("another node", |script| script.nodes().contains_key(name));
    let returned = script.nodes()[name];
    assert_ne!(returned, removed);
    script.await_claim(1001, returned, &[4]); // Its state is known later than its name.
    assert!(script.claim(1001, removed, &[4]).is_err(), "the former node has no DataNode");
}

#[test]
fn all_groups_are_listed_at_least_once_after_a_datanode_has_come_or_gone() {
    let seconds = Duration::from_secs;
    let pause = |changed: Option<u64>, listed| {
        super::settled_pause(changed.map(seconds), seconds(listed), seconds(3000))
    };
    assert_eq!(pause(None, 0), super::RELIST_EVERY);
    assert_eq!(pause(Some(100), 101), super::RELIST_EVERY);
    assert_eq!(pause(Some(100), 100), seconds(3000), "the last listing took long");
}

/// The last listing began before the change, and took so long that the next one is due much later.
#[test]
fn ten_minutes_after_a_change_of_datanodes_interrupted_lists_and_new_folders_cause_a_listing() {
    let is_settled = |changed: Option<u64>, now| {
        super::is_settled(changed.map(Duration::from_secs), Duration::from_secs(now))
    };
    assert!(is_settled(None, 1));
    assert_eq!([699, 700].map(|now| is_settled(Some(100), now)), [false, true]);
}

/// A DataNode has returned with the block that was rebuilt elsewhere. No event and no list tells which copy HDFS has
/// removed.
#[test]
fn surplus_copies_of_a_group_are_queried_until_hdfs_has_removed_them() {
    let script = Script::open_with(&[("homes-7", "0:0,1:1,2:2,3:3,4:4,0:3")]);
    script.await_that("a group", |script| script.stripes.load(Ordering::Relaxed) >= 1);
    std::thread::sleep(super::FOLLOW_EVERY * 4); // Queries that were due by now have the same answer.
    let (lists, before) = (script.lists(), script.stripes.load(Ordering::Relaxed));
    script.set("homes-7", "1:1,2:2,3:3,4:4,0:3");
    script.await_that("a report", |script| script.stripes.load(Ordering::Relaxed) == before + 1);
    assert_eq!(script.lists(), lists, "no listing is necessary");
}
