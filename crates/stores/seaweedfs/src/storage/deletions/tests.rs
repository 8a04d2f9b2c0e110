use std::sync::Mutex;

use super::*;
use crate::storage::doubles::{Paper, start};

fn volume() -> VolumeName {
    VolumeName::new("c", 5).expect("a name")
}

#[test]
fn late_deletions_are_named_until_they_are_made_also_after_a_restart() {
    let paper = Arc::new(Mutex::new(Paper::default()));
    let catalog = start(&paper);
    let shard = ShardName { volume: volume(), shard: 3 };
    let (late, other) = (
        Late::new(&shard, &ServerId("a:8080".to_owned())),
        Late::new(&shard, &ServerId("b:8080".to_owned())),
    );
    {
        let mut state = catalog.system().known.state();
        state.note_late(&late, String::new());
        state.note_late(&other, String::new());
        assert_eq!(state.late_deletions.lines(), [""; 0], "the first attempt has not ended");
        state.note_late(&late, "it is in maintenance".to_owned());
        let lines = state.late_deletions.lines();
        assert_eq!(lines.len(), 1);
        for part in ["volume c_5 ", "volume server a:8080", "it is in maintenance"] {
            assert!(lines[0].contains(part), "{lines:?}");
        }
        state.forget_late(&other);
    }
    drop(catalog);
    let catalog = start(&paper);
    catalog.system().known.recall_late_deletions().expect("readable");
    let mut state = catalog.system().known.state();
    let late_ones = |state: &State| state.late_deletions.0.keys().cloned().collect::<Vec<_>>();
    assert_eq!(late_ones(&state), std::slice::from_ref(&late));
    state.forget_late(&late);
    assert_eq!(paper.lock().expect("not poisoned").kept.len(), 0);
}
