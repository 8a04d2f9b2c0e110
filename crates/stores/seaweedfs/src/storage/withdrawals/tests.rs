use std::sync::Mutex;

use super::*;
use crate::storage::doubles::{Paper, start};

#[test]
fn withdrawals_whose_records_were_refused_survive_a_later_restart() {
    let paper = Arc::new(Mutex::new(Paper { refuses: true, ..Paper::default() }));
    let refuse = |refuses| paper.lock().expect("not poisoned").refuses = refuses;
    let recorded = || paper.lock().expect("not poisoned").kept.keys().cloned().collect::<Vec<_>>();
    let shard = ShardName { volume: VolumeName::new("c", 5).expect("a name"), shard: 3 };
    let it = Withdrawal::new(&shard, &ServerId("a:8080".to_owned()));
    {
        let catalog = start(&paper);
        let mut state = catalog.system().known.state();
        state.keep_withdrawal(&it);
        assert_eq!(recorded(), [""; 0]);
        let line = state.unwritten.line().expect("a problem");
        assert!(line.starts_with("1 of the coordinator's records"), "{line}");
        refuse(false);
        state.keep_records([]);
        assert_eq!((recorded(), state.unwritten.line()), (vec![it.key()], None));
    }
    let catalog = start(&paper);
    catalog.system().known.recall_withdrawals().expect("readable");
    let mut state = catalog.system().known.state();
    assert!(state.withdrawals.0.contains_key(&it));
    refuse(true);
    state.forget_withdrawal(&it);
    assert_eq!(recorded(), [it.key()]);
    refuse(false);
    state.keep_records([]);
    assert_eq!(recorded(), [""; 0]);
}

/// Another client had the lock, and has decoded the volume.
#[test]
fn a_withdrawal_outlives_its_volume() {
    let catalog = start(&Arc::new(Mutex::new(Paper::default())));
    let shared = catalog.system();
    let shard = ShardName { volume: VolumeName::new("c", 5).expect("a name"), shard: 3 };
    let it = Withdrawal::new(&shard, &ServerId("a".to_owned()));
    shared.known.state().keep_withdrawal(&it);
    assert!(!shared.known.state().view.volumes().may_exist(5));
    catalog.runtime().block_on(withdraw_pending(shared));
    assert!(shared.known.state().withdrawals.0.contains_key(&it), "the file may still be on the server");
}
