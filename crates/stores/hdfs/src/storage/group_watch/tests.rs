//! Tests of what is listed again and when. A shell script plays the part of the JVM.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dir::DirCatalog;
use store_api::{SharedRecords, Storage, StoreChange};
use tempfile::TempDir;

use crate::{Attachment, NameNodeSettings};

/// Answers queries. Files in the script's folder decide what the NameNode's edit log and its lists are like.
const SCRIPT: &str = r#"#!/bin/sh
cd "$(dirname "$0")"
echo '0 ready 4'
while read -r number word rest; do
    case $word in
        list) echo listed >>lists; if [ -e large ]; then awk -v "number=$number" -f list.awk; fi ;;
        position) if [ -e router ]; then echo "$number failed no such call"; continue; fi; echo "$number e 5" ;;
        edits) if [ -e purged ]; then rm purged; echo "$number gap 9"; else echo "$number e 5"; fi ;;
        counts) if [ -e many ]; then echo "$number l 1 0 0 20000"; else echo "$number l 0 0 0 0"; fi ;;
    esac
    echo "$number done"
done
"#;

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

struct Script {
    folder: TempDir,
    remarks: Arc<Mutex<Vec<String>>>,
    stripes: Arc<AtomicUsize>,
    _storage: Storage,
}

impl Script {
    /// Opens a storage whose NameNode has these properties.
    fn open(properties: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        properties.iter().for_each(|name| fs::write(path(name), "").expect("written"));
        fs::write(path("text"), SCRIPT).expect("written");
        fs::write(path("list.awk"), LIST).expect("written");
        // A separate process writes the script, see the tests of `namenode`.
        let mut install = std::process::Command::new("install");
        let installed = install.args(["-m", "755"]).args([path("text"), path("java")]).status();
        assert!(installed.is_ok_and(|status| status.success()));
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
            pushes: false,
        };
        drop(DirCatalog::create(path("records"), "a-cluster").expect("created"));
        let records = DirCatalog::open(path("records"), "a-cluster").expect("opened");
        let records: SharedRecords = Arc::new(Mutex::new(records));
        let mut storage = crate::open(attachment, records).expect("attached");
        let remarks = Arc::new(Mutex::new(Vec::new()));
        let stripes = Arc::new(AtomicUsize::new(0));
        let (noted, counted) = (Arc::clone(&remarks), Arc::clone(&stripes));
        storage.listen(Box::new(move |changes| {
            for change in changes {
                match change {
                    StoreChange::Remarks(lines) => *noted.lock().expect("whole") = lines,
                    StoreChange::Stripe(..) => drop(counted.fetch_add(1, Ordering::Relaxed)),
                    _ => {}
                }
            }
        }));
        Self { folder, remarks, stripes, _storage: storage }
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
