//! A stripe's life outside the catalog: reserved, described, rebuilt by helpers, completed or discarded.

use std::collections::VecDeque;
use std::path::PathBuf;

use hdfs_raid::{Codec, Draft, DraftName, File, Marks, NodeIndex, Owner, Scope, Storing};
use proptest::prelude::*;
use store_api::Later;

use super::*;
use crate::NameNodeSettings;

const BLOCK: u64 = 512;
const DRAFT: &str = "/tmp/p/a/.mend-16-2-7";
const CHECKED: Result<Option<Rebuilt>, RebuildError> = Ok(Some(Rebuilt { is_checked: true }));
const UNCHECKED: Result<Option<Rebuilt>, RebuildError> = Ok(Some(Rebuilt { is_checked: false }));

/// HDFS and the coordinator, which record what they are asked for.
#[derive(Debug, Default)]
struct World {
    log: Vec<String>,
    described: Vec<DescribedStripe>,
    held: Vec<Held>,
    up: BTreeSet<String>,
    /// How the repairs go on at each wait. A repair with `None` loses the helper `gone`.
    ends: VecDeque<Result<Option<Rebuilt>, RebuildError>>,
    gone: Option<String>,
    needs_token: bool,
    /// The last generation stamp.
    stamp: u64,
}

#[derive(Clone, Debug, Default)]
struct Fake(Arc<Mutex<World>>);

impl Fake {
    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().expect("no test panics while it holds the lock")
    }

    fn log(&self, text: impl Into<String>) {
        self.world().log.push(text.into());
    }
}

impl Drafts for Fake {
    async fn holders(&self, _: &[Range]) -> Result<Vec<Held>, Trouble> {
        Ok(self.world().held.clone())
    }

    async fn reserve(&self, block_bytes: u64, blocks: &[NewBlock]) -> Result<Vec<Reservation>, Trouble> {
        assert_eq!(block_bytes, BLOCK);
        self.log(format!("reserve {}", blocks.len()));
        let mut world = self.world();
        let mut reserve = |block: &NewBlock| {
            world.stamp += 1;
            let (path, stamp, needs_token) = (block.path.clone(), world.stamp, world.needs_token);
            Reservation { path, number: 100 + stamp as i64, stamp, needs_token }
        };
        Ok(blocks.iter().map(&mut reserve).collect())
    }

    async fn complete(&self, _: u64, reserved: &[Reservation]) -> Result<(), Trouble> {
        self.log(format!("complete {}", reserved.len()));
        Ok(())
    }

    async fn discard(&self, blocks: &[NewBlock]) -> Result<(), Trouble> {
        self.log(format!("discard {}", blocks.len()));
        Ok(())
    }
}

impl Rebuilder for Fake {
    fn helpers_up(&self) -> Later<'_, Result<BTreeSet<String>, RebuildError>> {
        let up = self.world().up.clone();
        Box::pin(std::future::ready(Ok(up)))
    }

    fn describe<'a>(&'a self, stripe: &'a DescribedStripe) -> Later<'a, Result<(), RebuildError>> {
        self.world().described.push(stripe.clone());
        Box::pin(std::future::ready(Ok(())))
    }

    fn begin<'a>(&'a self, rebuild: &'a Rebuild) -> Later<'a, Result<u64, RebuildError>> {
        let homes: Vec<String> =
            rebuild.homes.iter().map(|(index, node)| format!("{}@{node}", index.0)).collect();
        let scheme = rebuild.scheme.as_deref().unwrap_or("default");
        let order = if rebuild.one_first { " one first" } else { "" };
        let priority = if rebuild.is_background { "" } else { " before others" };
        self.log(format!("rebuild {} {scheme}{order}{priority}", homes.join(" ")));
        Box::pin(std::future::ready(Ok(7)))
    }

    fn await_end(&self, _: u64, _: Duration) -> Later<'_, Result<Option<Rebuilt>, RebuildError>> {
        let mut world = self.world();
        let end = world.ends.pop_front().expect("the test says how each repair ends");
        if end == Ok(None) {
            let gone = world.gone.take().expect("a helper");
            world.up.remove(&gone);
        }
        Box::pin(std::future::ready(end))
    }

    fn cancel(&self, repair: u64) -> Later<'_, ()> {
        self.log(format!("cancel {repair}"));
        Box::pin(std::future::ready(()))
    }
}

fn address(node: usize) -> String {
    format!("10.0.0.{node}:9866")
}

fn block(number: i64, bytes: u64) -> Block {
    Block { number, stamp: 1000 + number as u64, bytes, replicas: vec![NodeIndex(0)] }
}

fn file(path: &str, inode: u64, blocks: Vec<Block>) -> File {
    let bytes = blocks.iter().map(|block| block.bytes).sum();
    File {
        inode,
        path: path.to_owned(),
        bytes,
        block_bytes: BLOCK,
        replication: 3,
        modified_ms: 2,
        owner: Owner::Superuser,
        storing: Storing::Replicated,
        is_open: false,
        blocks,
    }
}

fn marked(file: File) -> MarkedFile {
    MarkedFile { file, marks: Marks::default() }
}

/// A file of five blocks, the last of which is short, in stripes of three; and its draft with these parity blocks of
/// the first stripe.
fn facts(present: &[usize]) -> Facts {
    let blocks = (1..=5).map(|number| block(number, if number == 5 { 76 } else { BLOCK })).collect();
    let parity = |&parity: &usize| {
        let blocks = vec![block(60 + parity as i64, BLOCK)];
        marked(file(&format!("{DRAFT}/0-{parity}"), 40 + parity as u64, blocks))
    };
    let name = DraftName { inode: 16, modified_ms: 2, term: 7 };
    let draft = Draft { path: DRAFT.to_owned(), name, files: present.iter().map(parity).collect() };
    Facts { source: Some(marked(file("/a", 16, blocks))), drafts: vec![draft], ..Facts::default() }
}

fn raid_file(code: &str) -> RaidFile {
    let codec = Codec::new("c", code.parse().expect("a code"), "/p", Scope::File);
    RaidFile { path: "/a".to_owned(), codec, policy: None, stray: None }
}

/// Parity blocks of a stripe, which go to the DataNodes 6, 7 and so on.
fn new_blocks(stripe: usize, parities: &[usize]) -> Vec<NewBlock> {
    let block = |&parity: &usize| NewBlock {
        path: format!("{DRAFT}/{stripe}-{parity}"),
        parity,
        datanode: address(6 + parity),
    };
    parities.iter().map(block).collect()
}

/// The blocks of a stripe with the DataNodes that hold them.
fn held(blocks: &[(i64, &[usize])]) -> Vec<Held> {
    let held = |&(number, nodes): &(i64, &[usize])| Held {
        number,
        stamp: 1000 + number as u64,
        bytes: if number == 5 { 76 } else { BLOCK },
        at: nodes.iter().copied().map(address).collect(),
    };
    blocks.iter().map(held).collect()
}

/// Returns a maker over a world in which helpers run at the DataNodes 1 to 9. The one at DataNode 3 has a name.
fn maker(
    held: Vec<Held>,
    ends: impl IntoIterator<Item = Result<Option<Rebuilt>, RebuildError>>,
) -> (HelperParity, Fake) {
    let fake = Fake::default();
    let up = (1..10).map(|node| if node == 3 { "h3".to_owned() } else { address(node) }).collect();
    *fake.world() = World { held, up, ends: ends.into_iter().collect(), stamp: 2000, ..World::default() };
    let settings = NameNodeSettings {
        java: PathBuf::from("java"),
        classpath: String::new(),
        uri: None,
        settings: Vec::new(),
    };
    let jvm = RaidNameNode::new(settings);
    let names = BTreeMap::from([(address(3), "h3".to_owned())]);
    let rebuilder: Arc<dyn Rebuilder> = Arc::new(fake.clone());
    (HelperParity::new(jvm, Arc::new(rebuilder.into()), Box::new(|_, _| {}), names, true), fake)
}

/// Returns the facts of the next look, after the reserved blocks of the stripes were made.
fn made(described: &[DescribedStripe]) -> (Facts, Vec<String>) {
    let mut facts = facts(&[]);
    for (stripe, described) in described.iter().enumerate() {
        let parity = &described.blocks[described.code.data_blocks()..];
        for (parity, block) in parity.iter().enumerate() {
            let name: ReplicaName = block.block.0.parse().expect("a replica");
            let block = Block {
                number: name.block(),
                stamp: name.stamp(),
                bytes: block.bytes,
                replicas: vec![NodeIndex(1)],
            };
            let file = file(&format!("{DRAFT}/{stripe}-{parity}"), 50, vec![block]);
            facts.drafts[0].files.push(marked(file));
        }
    }
    let paths = facts.drafts[0].files.iter().map(|file| file.file.path.clone()).collect();
    (facts, paths)
}

const FIRST: &[(i64, &[usize])] = &[(1, &[1, 2]), (2, &[1]), (3, &[3, 1])];
const SECOND: &[(i64, &[usize])] = &[(4, &[4]), (5, &[5])];

#[tokio::test]
async fn the_first_parity_block_is_made_before_the_others_so_that_a_check_relates_all() {
    let (maker, fake) = maker(held(FIRST), [CHECKED]);
    let maker = maker.with_scheme(Some("ppr".to_owned()));
    let (file, facts, blocks) = (raid_file("rs-6-3"), facts(&[]), new_blocks(0, &[0, 1, 2]));
    assert_eq!(maker.make(&fake, &file, &facts, 0, &blocks).await, Ok(Ok(())));
    let rebuilt = "rebuild 3@10.0.0.6:9866 4@10.0.0.7:9866 5@10.0.0.8:9866 ppr one first";
    assert_eq!(fake.world().log, ["reserve 3", rebuilt, "complete 3"]);
    let stripe = fake.world().described.remove(0);
    assert_eq!((stripe.stripe.0.as_str(), stripe.code.to_string().as_str()), ("encoding_1_2003", "rs-6-3"));
    let blocks: Vec<_> = stripe.blocks.iter().map(|it| (it.block.0.as_str(), it.node.as_deref())).collect();
    assert_eq!(
        blocks,
        [
            ("blk_1_1001", Some("10.0.0.2:9866")),
            ("blk_2_1002", Some("10.0.0.1:9866")),
            ("blk_3_1003", Some("h3")),
            ("blk_2101_2001", None),
            ("blk_2102_2002", None),
            ("blk_2103_2003", None),
        ]
    );
}

#[tokio::test]
async fn a_file_is_proven_once_if_the_checks_of_all_its_stripes_hold() {
    let file = raid_file("rs-5-3");
    for (second, is_proven) in [(CHECKED, true), (UNCHECKED, false)] {
        let (maker, fake) = maker(held(FIRST), [CHECKED, second]);
        let facts = facts(&[]);
        maker
            .make(&fake, &file, &facts, 0, &new_blocks(0, &[0, 1]))
            .await
            .expect("HDFS answers")
            .expect("made");
        fake.world().held = held(SECOND);
        maker
            .make(&fake, &file, &facts, 1, &new_blocks(1, &[0, 1]))
            .await
            .expect("HDFS answers")
            .expect("made");
        let (after, paths) = made(&fake.world().described);
        assert_eq!(maker.has_proof(&file, &after, &paths), is_proven, "the check costs nothing");
        assert_eq!(maker.take_proof(&file, &after, &paths), is_proven);
        assert!(!maker.has_proof(&file, &after, &paths));
        assert!(!maker.take_proof(&file, &after, &paths), "a second proof is made by the JVM");
    }
}

#[tokio::test]
async fn other_blocks_are_not_proven() {
    let (maker, fake) = maker(held(FIRST), [CHECKED, CHECKED]);
    let (file, facts) = (raid_file("rs-5-3"), facts(&[]));
    maker.make(&fake, &file, &facts, 0, &new_blocks(0, &[0, 1])).await.expect("HDFS answers").expect("made");
    fake.world().held = held(SECOND);
    maker.make(&fake, &file, &facts, 1, &new_blocks(1, &[0, 1])).await.expect("HDFS answers").expect("made");
    let (mut after, paths) = made(&fake.world().described);
    // A client has appended to the last block.
    after.source.as_mut().expect("a file").file.blocks[4].stamp += 1;
    assert!(!maker.take_proof(&file, &after, &paths));
}

#[tokio::test]
async fn a_code_with_one_parity_block_is_not_proven_by_helpers() {
    let (maker, fake) = maker(held(FIRST), [CHECKED]);
    let (file, facts) = (raid_file("xor-4-3"), facts(&[]));
    assert_eq!(maker.make(&fake, &file, &facts, 0, &new_blocks(0, &[0])).await, Ok(Ok(())));
    assert_eq!(fake.world().log, ["reserve 1", "rebuild 3@10.0.0.6:9866 default", "complete 1"]);
    assert_eq!(maker.proven().len(), 0);
}

#[tokio::test]
async fn other_replicas_are_read_once_a_helper_is_gone() {
    let (maker, fake) = maker(held(FIRST), [Ok(None), CHECKED]);
    fake.world().gone = Some("h3".to_owned());
    let (file, facts, blocks) = (raid_file("rs-5-3"), facts(&[]), new_blocks(0, &[0, 1]));
    assert_eq!(maker.make(&fake, &file, &facts, 0, &blocks).await, Ok(Ok(())));
    let expected = [
        "reserve 2",
        "rebuild 3@10.0.0.6:9866 4@10.0.0.7:9866 default one first",
        "cancel 7",
        "discard 2",
        "reserve 2",
        "rebuild 3@10.0.0.6:9866 4@10.0.0.7:9866 default one first",
        "complete 2",
    ];
    assert_eq!(fake.world().log, expected);
    let world = fake.world();
    let [first, second] = &world.described[..] else { panic!("two descriptions") };
    assert_ne!(first.stripe, second.stripe);
    let nodes: Vec<_> = second.blocks.iter().filter_map(|block| block.node.as_deref()).collect();
    assert_eq!(nodes, ["10.0.0.2:9866", "10.0.0.1:9866", "10.0.0.1:9866"]);
}

#[tokio::test]
async fn nothing_is_reserved_if_a_target_has_no_helper() {
    let (maker, fake) = maker(held(FIRST), []);
    fake.world().up.remove(&address(7));
    let (file, facts, blocks) = (raid_file("rs-5-3"), facts(&[]), new_blocks(0, &[0, 1]));
    let why =
        maker.make(&fake, &file, &facts, 0, &blocks).await.expect("HDFS answers").expect_err("no helper");
    assert!(why.contains("10.0.0.7:9866"), "{why}");
    assert!(fake.world().log.is_empty());
}

#[tokio::test]
async fn nothing_is_reserved_before_the_coordinator_has_started() {
    let (maker, fake) = maker(held(FIRST), []);
    let maker = HelperParity { rebuilder: LateRebuilder::default(), ..maker };
    let (file, facts, blocks) = (raid_file("rs-5-3"), facts(&[]), new_blocks(0, &[0, 1]));
    let why =
        maker.make(&fake, &file, &facts, 0, &blocks).await.expect("HDFS answers").expect_err("too early");
    assert!(why.contains("it is starting"), "{why}");
    assert!(fake.world().log.is_empty());
}

#[tokio::test]
async fn files_of_failed_attempts_are_discarded() {
    let failed = || Err(RebuildError::Failed("repair 7: too few helpers".to_owned()));
    let (maker, fake) = maker(held(FIRST), [failed(), failed()]);
    let (file, facts, blocks) = (raid_file("rs-5-3"), facts(&[]), new_blocks(0, &[0, 1]));
    let why =
        maker.make(&fake, &file, &facts, 0, &blocks).await.expect("HDFS answers").expect_err("it failed");
    assert!(why.contains("too few helpers"), "{why}");
    assert_eq!(fake.world().log.iter().filter(|line| *line == "discard 2").count(), ATTEMPTS);
    assert_eq!(fake.world().log.last().map(String::as_str), Some("discard 2"));
    assert!(!fake.world().log.iter().any(|line| line.starts_with("complete")));
}

#[tokio::test]
async fn blocks_that_need_tokens_are_left_to_the_jvm_where_helpers_push() {
    let (maker, fake) = maker(held(FIRST), []);
    fake.world().needs_token = true;
    let (file, facts, blocks) = (raid_file("rs-5-3"), facts(&[]), new_blocks(0, &[0, 1]));
    let why = maker.make(&fake, &file, &facts, 0, &blocks).await.expect("HDFS answers").expect_err("tokens");
    assert!(why.contains("block tokens"), "{why}");
    assert!(fake.world().described.is_empty());
    fake.world().ends = [CHECKED].into();
    let maker = HelperParity { pushes: false, ..maker };
    assert_eq!(maker.make(&fake, &file, &facts, 0, &blocks).await, Ok(Ok(())), "the plug-in needs none");
}

#[tokio::test]
async fn a_file_that_has_changed_since_the_look_is_looked_at_again() {
    let (maker, fake) = maker(held(FIRST), []);
    fake.world().held[1].stamp += 1;
    let (file, facts, blocks) = (raid_file("rs-5-3"), facts(&[]), new_blocks(0, &[0, 1]));
    let trouble = maker.make(&fake, &file, &facts, 0, &blocks).await.expect_err("another stamp");
    assert!(matches!(trouble, Trouble::Refused { kind: Refusal::Changed, .. }), "{trouble}");
    assert!(fake.world().log.is_empty());
}

/// Its data blocks have one replica each, so data is lost with the next disk.
#[tokio::test]
async fn the_parity_of_a_file_with_single_replicas_does_not_wait_for_other_repairs() {
    let (maker, fake) = maker(held(FIRST), [CHECKED]);
    let (file, mut facts, blocks) = (raid_file("rs-5-3"), facts(&[]), new_blocks(0, &[0, 1]));
    facts.source.as_mut().expect("a file").file.replication = 1;
    assert_eq!(maker.make(&fake, &file, &facts, 0, &blocks).await, Ok(Ok(())));
    let rebuilt = "rebuild 3@10.0.0.6:9866 4@10.0.0.7:9866 default one first before others";
    assert_eq!(fake.world().log, ["reserve 2", rebuilt, "complete 2"]);
}

#[tokio::test]
async fn parity_of_a_former_run_is_used() {
    let existing = [FIRST, &[(60, &[8][..])]].concat();
    let (maker, fake) = maker(held(&existing), [CHECKED]);
    let (file, facts, blocks) = (raid_file("rs-6-3"), facts(&[0]), new_blocks(0, &[1, 2]));
    assert_eq!(maker.make(&fake, &file, &facts, 0, &blocks).await, Ok(Ok(())));
    let rebuilt = "rebuild 4@10.0.0.7:9866 5@10.0.0.8:9866 default";
    assert_eq!(fake.world().log, ["reserve 2", rebuilt, "complete 2"]);
    assert_eq!(fake.world().described[0].blocks[3].node.as_deref(), Some("10.0.0.8:9866"));
    assert_eq!(maker.proven().len(), 1, "the check relates all six blocks");
}

#[tokio::test]
async fn a_check_with_two_spare_survivors_proves_nothing() {
    let existing = [FIRST, &[(60, &[8][..]), (61, &[9][..])]].concat();
    let (maker, fake) = maker(held(&existing), [CHECKED]);
    let (file, facts, blocks) = (raid_file("rs-6-3"), facts(&[0, 1]), new_blocks(0, &[2]));
    assert_eq!(maker.make(&fake, &file, &facts, 0, &blocks).await, Ok(Ok(())));
    assert_eq!(maker.proven().len(), 0, "one of the parity blocks was not part of the check");
}

proptest! {
    /// Compared with trying all choices.
    #[test]
    fn blocks_are_read_from_as_many_helpers_as_possible(
        candidates in prop::collection::vec(prop::collection::btree_set(0_usize..6, 1..4), 1..6),
    ) {
        let all: Vec<Vec<usize>> = candidates.iter().map(|all| all.iter().copied().collect()).collect();
        let names: Vec<Vec<String>> =
            all.iter().map(|all| all.iter().map(usize::to_string).collect()).collect();
        let chosen = apart(&names);
        prop_assert!(chosen.iter().zip(&names).all(|(name, all)| all.contains(name)));
        let different = |chosen: &[String]| chosen.iter().collect::<BTreeSet<_>>().len();
        let best = names.iter().fold(vec![Vec::new()], |choices: Vec<Vec<String>>, all| {
            let with = |choice: &Vec<String>| {
                all.iter().map(|name| [&choice[..], std::slice::from_ref(name)].concat()).collect::<Vec<_>>()
            };
            choices.iter().flat_map(with).collect()
        });
        prop_assert_eq!(different(&chosen), best.iter().map(|choice| different(choice)).max().unwrap_or(0));
    }
}
