//! Coordinators that are stopped anywhere, second coordinators and clients that change files, on a simulated
//! HDFS.
//!
//! After every call, each block of a source must have as many replicas as it had before, or a replica and
//! valid parity; and no note may be on wrong parity. Every run must end with the file encoded or as it was.

mod driving;
mod hdfs;
mod renames;

use std::collections::{BTreeMap, BTreeSet};

use hdfs_raid::{
    Action, Codec, DECISION_MS, DataNodes, End, Exclusion, FactFinder, Facts, Goal, Listing, Next, Notes,
    Policies, Waiting, Work, forecast,
};
use proptest::prelude::*;

use crate::hdfs::{CHANGES, Change, DATA, Hdfs, PARITY, Refused, SimFile};

const POLICY: &str = r#"
    [[policy]]
    name = "all"
    paths = ["/d"]
    codec = "test"
    min_age = "0s"
    min_blocks = 1

    [[codec]]
    name = "test"
    code = "rs-5-3"
    parity_root = "/p"
"#;
const ENCODED: Goal = Goal::Encoded { replication: 1, parity_replication: 1 };
/// More calls than any scenario makes.
const MOST_CALLS: usize = 60;
/// More steps than any run takes.
const MOST_STEPS: usize = 1000;

/// An event that precedes a call or takes its place.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The coordinator is killed, and another one starts.
    Crash,
    /// Another coordinator starts, and is killed after some steps.
    Second(Goal, usize),
    /// A client changes the file.
    Client(Change),
}

/// Why an action was not completed.
enum Stop {
    Crashed,
    Refused,
}

/// The state in which a run begins.
#[derive(Clone, Copy, Debug)]
enum Start {
    Replicated,
    /// HDFS-RAID has written parity, right or wrong, and was interrupted.
    Foreign(bool),
    Encoded,
    /// The file was changed after it was encoded.
    Stale(Change),
}

const STARTS: [Start; 8] = [
    Start::Replicated,
    Start::Foreign(true),
    Start::Foreign(false),
    Start::Encoded,
    Start::Stale(Change::Append),
    Start::Stale(Change::Overwrite),
    Start::Stale(Change::Truncate),
    Start::Stale(Change::Touch),
];

#[derive(Clone)]
struct World {
    hdfs: Hdfs,
    policies: Policies,
    /// The events, by the number of the call.
    events: BTreeMap<usize, Event>,
    calls: usize,
    last_term: u64,
    /// Whether a client may change a file between the look and the call that lowers its replication.
    is_late: bool,
    /// The actions so far.
    actions: Vec<Action>,
    /// The folders whose files the coordinator repairs; `None` if all.
    repaired: Option<Vec<String>>,
}

struct Coordinator {
    path: &'static str,
    goal: Goal,
    work: Work,
}

impl World {
    fn new(start: Start) -> Self {
        let policies = Policies::parse(POLICY).expect("policies");
        let (events, actions) = (BTreeMap::new(), Vec::new());
        let hdfs = Hdfs::new();
        let (is_late, repaired) = (false, None);
        let mut world = Self { hdfs, policies, events, calls: 0, last_term: 0, is_late, actions, repaired };
        match start {
            Start::Replicated => {}
            Start::Foreign(is_right) => world.hdfs.add_parity("/d/f", is_right),
            Start::Encoded | Start::Stale(_) => assert_eq!(world.run("/d/f", ENCODED), End::Encoded),
        }
        if let Start::Stale(change) = start {
            world.hdfs.change(change);
        }
        (world.calls, world.actions) = (0, Vec::new());
        world
    }

    fn codec(&self) -> &Codec {
        self.policies.codec("test").expect("defined")
    }

    fn coordinator(&mut self, path: &'static str, goal: Goal) -> Coordinator {
        self.last_term += 1;
        let work = Work::new(self.codec().clone(), PARITY, goal, self.last_term);
        Coordinator { path, goal, work }
    }

    /// Runs a coordinator to the end.
    fn run(&mut self, path: &'static str, goal: Goal) -> End {
        let mut coordinator = self.coordinator(path, goal);
        let mut steps = (0..MOST_STEPS).filter_map(|_| self.step(&mut coordinator));
        steps.next().unwrap_or_else(|| panic!("no end"))
    }

    fn facts(&self, path: &str) -> (Facts, DataNodes) {
        let marks = self.hdfs.files.iter().map(|(path, file)| (path.clone(), file.marks.clone())).collect();
        let living = self.hdfs.files.values().map(|file| file.inode).collect();
        let notes = Notes { marks, living, kept: self.hdfs.kept.clone(), ..Notes::default() };
        let listing = Listing { notes, repaired: self.repaired.clone(), ..self.hdfs.listing() };
        let policy = &self.policies.policies()[0];
        let facts =
            FactFinder::new(&listing).facts(self.codec(), Some(policy), path, self.hdfs.now_ms + 1000);
        (facts, DataNodes::of(&listing))
    }

    /// Takes the next step of a coordinator.
    fn step(&mut self, coordinator: &mut Coordinator) -> Option<End> {
        let (facts, nodes) = self.facts(coordinator.path);
        match coordinator.work.next(&facts, &nodes, self.hdfs.now_ms) {
            Next::End(end) => return Some(end),
            Next::Wait(waiting) => {
                assert_ne!(waiting, Waiting::Repair, "no block is lost");
                self.hdfs.heartbeat();
                self.check();
            }
            Next::Act(action) => {
                self.actions.push(action.clone());
                match (self.act(&action, coordinator.path), action) {
                    (Err(Stop::Crashed), _) => {
                        *coordinator = self.coordinator(coordinator.path, coordinator.goal);
                    }
                    (Ok(Some(is_right)), Action::Prove { note, .. }) => {
                        coordinator.work.handle_proof(note, is_right);
                    }
                    _ => {}
                }
            }
        }
        None
    }

    /// Carries out an action on the file at `path`. Returns whether parity is right, if this is to be proven.
    fn act(&mut self, action: &Action, path: &str) -> Result<Option<bool>, Stop> {
        let Action::Prove { note, parity } = action else {
            return self.change(action, path).map(|()| None);
        };
        let mut proof = None;
        self.call(|hdfs| {
            proof = Some(hdfs.prove(path, note, parity)?);
            Ok(())
        })?;
        Ok(proof)
    }

    /// Carries out an action in single calls. Files are deleted, marked, touched and renamed by the inodes that they had
    /// when this was decided.
    fn change(&mut self, action: &Action, path: &str) -> Result<(), Stop> {
        let decided_ms = self.hdfs.now_ms;
        let inode = |hdfs: &Hdfs, path: &str| hdfs.files.get(path).map(|file| file.inode);
        match action {
            Action::MakeFolder(path) => self.call(|hdfs| hdfs.mkdirs(path)),
            Action::TakeOver { from, to } => self.call(|hdfs| hdfs.rename(from, to, false)),
            Action::Delete(path) => {
                let known = inode(&self.hdfs, path);
                self.call(|hdfs| {
                    let _ = hdfs.path_of(path, known).map(|path| hdfs.delete(&path));
                    Ok(())
                })
            }
            Action::Write { stripe, blocks } => blocks.iter().try_for_each(|block| {
                self.call(|hdfs| hdfs.create(&block.path, &block.datanode))?;
                self.call(|hdfs| hdfs.complete(&block.path, path, *stripe, block.parity))
            }),
            Action::Prove { .. } => unreachable!("it changes nothing"),
            Action::Mark { path, mark } => {
                let known = inode(&self.hdfs, path);
                self.call(|hdfs| hdfs.mark(&hdfs.path_of(path, known)?, mark.clone()))
            }
            Action::Join { target, sources } => self.call(|hdfs| hdfs.concat(target, sources)),
            Action::SetTime { path, modified_ms } => {
                let known = inode(&self.hdfs, path);
                self.call(|hdfs| hdfs.set_time(&hdfs.path_of(path, known)?, *modified_ms))
            }
            Action::Publish { from, to, replaces } => {
                let folder = to.rsplit_once('/').expect("a path").0;
                let (source, known, replaced) =
                    (inode(&self.hdfs, path), inode(&self.hdfs, from), inode(&self.hdfs, to));
                self.call(|hdfs| hdfs.mkdirs(folder))?;
                self.call(|hdfs| {
                    let is_same = inode(hdfs, path) == source && inode(hdfs, to) == replaced;
                    let from = hdfs.path_of(from, known)?;
                    if is_same { hdfs.rename(&from, to, *replaces) } else { Err(Refused) }
                })
            }
            Action::SetReplication { path, replication } => {
                let looked_up = inode(&self.hdfs, path);
                let is_refused = self.interrupt()? && !self.is_late;
                let is_other = inode(&self.hdfs, path) != looked_up;
                if is_refused || is_other || self.hdfs.now_ms - decided_ms > DECISION_MS {
                    return Err(Stop::Refused);
                }
                self.carry_out(|hdfs| hdfs.set_replication(path, *replication))
            }
            Action::Move(moves) => moves.iter().try_for_each(|step| {
                self.call(|hdfs| hdfs.replace_block(&step.path, step.block, &step.from, &step.to))
            }),
        }
    }

    fn call(&mut self, call: impl FnOnce(&mut Hdfs) -> Result<(), Refused>) -> Result<(), Stop> {
        self.interrupt()?;
        self.carry_out(call)
    }

    fn carry_out(&mut self, call: impl FnOnce(&mut Hdfs) -> Result<(), Refused>) -> Result<(), Stop> {
        call(&mut self.hdfs).map_err(|Refused| Stop::Refused)?;
        self.check();
        Ok(())
    }

    /// Lets the event before the next call happen; returns whether a client changed a file.
    fn interrupt(&mut self) -> Result<bool, Stop> {
        let event = self.events.remove(&self.calls);
        self.calls += 1;
        match event {
            None => return Ok(false),
            Some(Event::Crash) => return Err(Stop::Crashed),
            Some(Event::Second(goal, steps)) => {
                let mut second = self.coordinator("/d/f", goal);
                let _ = (0..steps).find_map(|_| self.step(&mut second));
                return Ok(false);
            }
            Some(Event::Client(change)) => self.hdfs.change(change),
        }
        self.check();
        Ok(true)
    }

    /// Checks the invariants. Replicas that HDFS has decided to remove do not count.
    fn check(&self) {
        for file in self.hdfs.files.values().filter(|file| file.marks.note.is_some()) {
            if let Some(source) = self.source_of(file) {
                let contents = file.blocks.iter().map(|block| block.contents);
                assert!(contents.eq(source.expected_parity()), "a note on wrong parity: {file:?}");
            }
        }
        for (path, file) in self.hdfs.files.iter().filter(|(path, _)| path.starts_with("/d/")) {
            let is_protected = self.is_protected(file);
            for block in &file.blocks {
                assert!(block.kept() > 0, "no replica of {path}");
                let is_safe = is_protected || self.is_late || block.kept() >= block.most;
                assert!(is_safe, "{path} has lost replicas without parity after {:#?}", self.actions);
            }
        }
    }

    /// Returns the file to which a note belongs, if both files still have the blocks that the note names.
    fn source_of(&self, parity: &SimFile) -> Option<&SimFile> {
        let note = parity.marks.note?;
        let mut files = self.hdfs.files.values();
        let source = files.find(|file| file.inode == note.inode && file.fingerprint() == note.source)?;
        (parity.fingerprint() == note.parity).then_some(source)
    }

    /// Whether the parity of a file is in place.
    fn is_protected(&self, source: &SimFile) -> bool {
        let mut parity = self.hdfs.files.iter().filter(|(path, _)| path.starts_with("/p/"));
        parity.any(|(_, parity)| self.source_of(parity).is_some_and(|it| it.inode == source.inode))
    }

    /// Checks that the file is encoded and well placed, and that nothing else is left.
    fn assert_encoded(&self) {
        let (source, parity) = (&self.hdfs.files["/d/f"], &self.hdfs.files["/p/d/f"]);
        assert!(self.is_protected(source));
        assert_eq!((source.replication, parity.replication), (1, 1));
        assert_eq!(source.modified_ms, parity.modified_ms);
        for (data, parity) in source.blocks.chunks(DATA).zip(parity.blocks.chunks(PARITY)) {
            let nodes: Vec<usize> =
                data.iter().chain(parity).flat_map(|block| block.replicas.iter().copied()).collect();
            assert_eq!(nodes.len(), data.len() + parity.len());
            assert_eq!(nodes.iter().collect::<BTreeSet<_>>().len(), nodes.len(), "each block has a DataNode");
        }
        assert!(!self.hdfs.files.keys().any(|path| path.starts_with("/tmp/")));
    }

    /// Checks the end of a run.
    fn assert_end(&self, end: &End) {
        match end {
            End::Encoded => self.assert_encoded(),
            End::Plain => assert!(!self.hdfs.files.contains_key("/p/d/f")),
            End::Unfit(Exclusion::Open | Exclusion::Undone) => {}
            End::SourceMissing | End::Occupied { .. } | End::Unclaimed { .. } | End::Superseded => {}
            end => panic!("{end}"),
        }
        if let Some(source) = self.hdfs.files.get("/d/f").filter(|_| *end != End::Encoded) {
            assert_eq!(source.replication, 3, "{end}");
            assert!(source.blocks.iter().all(|block| block.replicas.len() >= 3), "{end}");
        }
    }
}

/// Runs to the end, with events before these calls. Then lets all files be encoded.
fn check_run(mut world: World, goal: Goal, events: &[(usize, Event)]) {
    world.events = events.iter().copied().collect();
    let end = world.run("/d/f", goal);
    world.assert_end(&end);
    world.events.clear();
    world.hdfs.close();
    // A file whose parity path is taken waits until that parity is moved to its own source.
    let end = world.run("/d/f", ENCODED);
    world.assert_end(&end);
    if world.hdfs.files.contains_key("/d/g") {
        let end = world.run("/d/g", ENCODED);
        let is_expected = matches!(end, End::Encoded | End::Unclaimed { .. } | End::Unfit(Exclusion::Undone));
        assert!(is_expected, "{end}");
    }
}

fn events() -> Vec<Event> {
    let seconds = [ENCODED, Goal::Plain]
        .into_iter()
        .flat_map(|goal| [1, 3, 5, 9, MOST_STEPS].map(|steps| Event::Second(goal, steps)));
    [Event::Crash].into_iter().chain(seconds).chain(CHANGES.map(Event::Client)).collect()
}

fn first_words(actions: &[Action]) -> Vec<String> {
    let word = |action: &Action| action.to_string().split(' ').next().map(str::to_owned);
    actions.iter().filter_map(word).collect()
}

#[test]
fn the_calls_of_an_encoding() {
    let mut world = World::new(Start::Replicated);
    assert_eq!(world.run("/d/f", ENCODED), End::Encoded);
    world.assert_encoded();
    let expected =
        ["create", "encode", "encode", "read", "set", "append", "set", "let", "delete", "set", "move"];
    assert_eq!(first_words(&world.actions), expected);
    let note = world.hdfs.files["/p/d/f"].marks.note.expect("a note");
    assert_eq!((note.inode, note.replication), (world.hdfs.files["/d/f"].inode, 3));
}

/// HDFS has decided to remove replicas when the file was lowered, and still lists them. They must not replace the parity.
#[test]
fn an_undo_does_not_count_replicas_that_hdfs_is_about_to_remove() {
    let mut world = World::new(Start::Replicated);
    let mut coordinator = world.coordinator("/d/f", ENCODED);
    while world.hdfs.files["/d/f"].replication > 1 {
        assert_eq!(world.step(&mut coordinator), None);
    }
    world.hdfs.busy_until_ms = world.hdfs.now_ms + 5 * DECISION_MS;
    assert!(world.hdfs.files["/d/f"].blocks.iter().all(|block| block.replicas.len() == 3));
    assert_eq!(world.run("/d/f", Goal::Plain), End::Plain);
    (0..5).for_each(|_| world.hdfs.heartbeat());
    world.check();
    world.assert_end(&End::Plain);
}

/// Another coordinator, and readers, do not know that it is wrong.
#[test]
fn parity_that_was_found_wrong_is_stale_for_all_programs() {
    let mut world = World::new(Start::Foreign(false));
    let mut coordinator = world.coordinator("/d/f", ENCODED);
    while !world.actions.iter().any(|action| matches!(action, Action::Mark { .. })) {
        assert_eq!(world.step(&mut coordinator), None);
    }
    assert_eq!(first_words(&world.actions), ["read", "set"]);
    let (facts, nodes) = world.facts("/d/f");
    let next = world.coordinator("/d/f", ENCODED).work.next(&facts, &nodes, world.hdfs.now_ms);
    assert!(matches!(next, Next::Act(Action::MakeFolder(_))), "it is not checked again: {next}");
    assert_eq!(world.run("/d/f", ENCODED), End::Encoded);
    world.assert_encoded();
}

#[test]
fn the_calls_of_an_undo() {
    let mut world = World::new(Start::Encoded);
    assert_eq!(world.run("/d/f", Goal::Plain), End::Plain);
    world.assert_end(&End::Plain);
    assert_eq!(first_words(&world.actions), ["set", "set", "set", "delete"]);
    // Otherwise, the policy would encode the file again.
    assert_eq!(world.run("/d/f", ENCODED), End::Unfit(Exclusion::Undone));
}

#[test]
fn a_touched_file_is_not_encoded_again() {
    let mut world = World::new(Start::Stale(Change::Touch));
    assert_eq!(world.run("/d/f", ENCODED), End::Encoded);
    world.assert_encoded();
    assert_eq!(first_words(&world.actions), ["set"]);
}

/// The coordinator would not rebuild lost blocks of the file, so it is not encoded again. It must not stay with one
/// replica of its new bytes either.
#[test]
fn a_changed_file_outside_of_the_repaired_folders_only_gets_its_replicas() {
    let mut world = World::new(Start::Stale(Change::Append));
    world.repaired = Some(vec!["/other".to_owned()]);
    assert_eq!(world.run("/d/f", ENCODED), End::Unfit(Exclusion::Outside));
    assert_eq!(first_words(&world.actions), ["set"]);
    assert_eq!(world.hdfs.files["/d/f"].replication, 3);
    let mut new = World::new(Start::Replicated);
    new.repaired = Some(vec!["/other".to_owned()]);
    assert_eq!(new.run("/d/f", ENCODED), End::Unfit(Exclusion::Outside));
    assert!(new.actions.is_empty());
}

#[test]
fn the_parity_of_a_renamed_file_is_not_replaced() {
    let mut world = World::new(Start::Encoded);
    world.hdfs.change(Change::Replace);
    let inode = world.hdfs.files["/d/g"].inode;
    for goal in [ENCODED, Goal::Plain] {
        assert_eq!(world.run("/d/f", goal), End::Occupied { inode });
    }
    assert!(world.actions.is_empty());
}

/// The renamed file has few replicas, and its parity is not found at its new path.
#[test]
fn a_file_that_is_renamed_after_it_was_encoded_is_reported() {
    let mut world = World::new(Start::Encoded);
    world.hdfs.change(Change::Rename);
    let inode = world.hdfs.files["/d/g"].inode;
    for goal in [ENCODED, Goal::Plain] {
        assert_eq!(world.run("/d/f", goal), End::Occupied { inode });
    }
    world.hdfs.delete("/d/g");
    assert_eq!(world.run("/d/f", ENCODED), End::SourceMissing);
}

/// The parity also protects blocks that only the snapshot has.
#[test]
fn the_parity_of_a_snapshot_is_kept() {
    for goal in [ENCODED, Goal::Plain] {
        let mut world = World::new(Start::Stale(Change::Overwrite));
        world.hdfs.snapshots.push("/d".to_owned());
        let parity = world.hdfs.files["/p/d/f"].fingerprint();
        assert_eq!(world.run("/d/f", goal), End::Unfit(Exclusion::Snapshots("/d".to_owned())));
        assert_eq!(world.hdfs.files["/p/d/f"].fingerprint(), parity);
    }
}

/// The forecast is the sequence of actions, except for the moves that HDFS's choice of replicas requires.
#[test]
fn a_forecast_comes_true() {
    for (start, goal, end) in [
        (Start::Replicated, ENCODED, End::Encoded),
        (Start::Foreign(true), ENCODED, End::Encoded),
        (Start::Stale(Change::Append), ENCODED, End::Encoded),
        (Start::Encoded, Goal::Plain, End::Plain),
    ] {
        let mut world = World::new(start);
        let (facts, mut nodes) = world.facts("/d/f");
        let work = world.coordinator("/d/f", goal).work;
        let steps = forecast(work, facts, &mut nodes, world.hdfs.now_ms);
        assert_eq!(steps.last(), Some(&Next::End(end.clone())), "{start:?}");
        assert_eq!(world.run("/d/f", goal), end);
        let foretold: Vec<Action> = steps
            .into_iter()
            .filter_map(|step| match step {
                Next::Act(action) => Some(action),
                Next::Wait(_) | Next::End(_) => None,
            })
            .collect();
        let words = |actions: &[Action]| {
            let words = first_words(actions).into_iter();
            words.filter(|word| word != "move").collect::<Vec<_>>()
        };
        assert_eq!(words(&foretold), words(&world.actions), "{start:?}");
    }
}

/// The dry run tells what the run would.
#[test]
fn a_forecast_of_an_undo_names_a_lost_block() {
    for (lost, is_decodable) in [(1, true), (3, false)] {
        let mut world = World::new(Start::Encoded);
        let blocks = world.hdfs.files["/d/f"].blocks[..lost].iter();
        let nodes: Vec<usize> = blocks.flat_map(|block| block.replicas.iter().copied()).collect();
        nodes.into_iter().for_each(|node| world.hdfs.kill(node));
        let (facts, mut nodes) = world.facts("/d/f");
        let work = world.coordinator("/d/f", Goal::Plain).work;
        let steps = forecast(work, facts, &mut nodes, world.hdfs.now_ms);
        assert_eq!(steps, [Next::End(End::Lost { block: 0, is_decodable })]);
    }
}

/// Each event, before each call of each scenario.
#[test]
fn a_run_is_interrupted_anywhere() {
    for start in STARTS {
        for goal in [ENCODED, Goal::Plain] {
            let world = World::new(start);
            let mut undisturbed = world.clone();
            let end = undisturbed.run("/d/f", goal);
            undisturbed.assert_end(&end);
            assert!(undisturbed.calls < MOST_CALLS);
            for call in 0..undisturbed.calls {
                for event in events() {
                    check_run(world.clone(), goal, &[(call, event)]);
                }
            }
        }
    }
}

/// HDFS has no call that lowers the replication only if the file is unchanged. A change in this window leaves
/// new bytes with one replica until the next step.
#[test]
fn a_change_right_before_the_replication_is_lowered_is_repaired() {
    for change in [Change::Append, Change::Overwrite, Change::Truncate, Change::Touch] {
        let mut undisturbed = World::new(Start::Replicated);
        undisturbed.run("/d/f", ENCODED);
        for call in 0..undisturbed.calls {
            let mut world = World::new(Start::Replicated);
            world.is_late = true;
            world.events.insert(call, Event::Client(change));
            assert_eq!(world.run("/d/f", ENCODED), End::Encoded, "{change:?} before call {call}");
            world.assert_encoded();
        }
    }
}

/// The other file at the path has no parity, and nothing would raise its replication again.
#[test]
fn a_file_that_takes_the_place_of_another_keeps_its_replication() {
    let mut undisturbed = World::new(Start::Replicated);
    undisturbed.run("/d/f", ENCODED);
    for call in 0..undisturbed.calls {
        let mut world = World::new(Start::Replicated);
        world.is_late = true;
        world.events.insert(call, Event::Client(Change::Replace));
        let end = world.run("/d/f", ENCODED);
        world.assert_end(&end);
    }
}

/// Right after the replication was lowered, one DataNode holds three blocks of a stripe that may lose two.
#[test]
fn a_lost_block_before_the_moves_raises_the_replication_again() {
    let mut world = World::new(Start::Replicated);
    let mut coordinator = world.coordinator("/d/f", ENCODED);
    while world.hdfs.files["/d/f"].replication > 1 {
        assert_eq!(world.step(&mut coordinator), None);
    }
    (0..3).for_each(|_| world.hdfs.heartbeat());
    let parity = world.hdfs.files["/p/d/f"].blocks[0].replicas.clone();
    world.hdfs.kill(*parity.first().expect("a replica"));
    assert_eq!(world.step(&mut coordinator), None);
    assert_eq!(world.hdfs.files["/d/f"].replication, 3);
    let (facts, nodes) = world.facts("/d/f");
    let next = coordinator.work.next(&facts, &nodes, world.hdfs.now_ms);
    assert_eq!(next, Next::Wait(Waiting::Repair));
}

/// As above, and there are not enough DataNodes left for a stripe.
#[test]
fn lost_datanodes_before_the_moves_raise_the_replication_again() {
    let mut world = World::new(Start::Replicated);
    let mut coordinator = world.coordinator("/d/f", ENCODED);
    while world.hdfs.files["/d/f"].replication > 1 {
        assert_eq!(world.step(&mut coordinator), None);
    }
    (0..3).for_each(|_| world.hdfs.heartbeat());
    let blocks = world.hdfs.files.values().flat_map(|file| &file.blocks);
    let used: BTreeSet<usize> = blocks.flat_map(|block| block.replicas.iter().copied()).collect();
    (0..hdfs::NODES).filter(|node| !used.contains(node)).for_each(|node| world.hdfs.kill(node));
    let parity = world.hdfs.files["/p/d/f"].blocks[0].replicas.clone();
    world.hdfs.kill(*parity.first().expect("a replica"));
    assert_eq!(world.step(&mut coordinator), None);
    assert_eq!(world.hdfs.files["/d/f"].replication, 3);
}

/// A DataNode holds more blocks of a stripe than may be lost, and there are too few others to which they could move.
#[test]
fn a_crowded_file_gets_its_replicas_if_there_are_too_few_datanodes() {
    let mut world = World::new(Start::Encoded);
    let blocks = &mut world.hdfs.files.get_mut("/d/f").expect("a file").blocks;
    blocks[..DATA].iter_mut().for_each(|block| block.replicas = [0].into());
    (DATA + 1..hdfs::NODES).for_each(|node| world.hdfs.decommission(node));
    let mut coordinator = world.coordinator("/d/f", ENCODED);
    assert_eq!(world.step(&mut coordinator), None);
    assert_eq!(world.hdfs.files["/d/f"].replication, 3);
    let (facts, nodes) = world.facts("/d/f");
    let next = coordinator.work.next(&facts, &nodes, world.hdfs.now_ms);
    assert!(matches!(next, Next::End(End::Unfit(Exclusion::Nodes(_)))), "{next}");
}

fn any_event() -> impl Strategy<Value = (usize, Event)> {
    (0..2 * MOST_CALLS, prop::sample::select(events()))
}

proptest! {
    #[test]
    fn runs_with_several_events(
        start in prop::sample::select(STARTS.to_vec()),
        goal in prop::sample::select(vec![ENCODED, Goal::Plain]),
        events in prop::collection::vec(any_event(), 2..6),
    ) {
        check_run(World::new(start), goal, &events);
    }
}
