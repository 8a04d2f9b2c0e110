//! The state of every file in a listing, and the plan for files that are not encoded yet.

mod folders;

use std::collections::{BTreeMap, BTreeSet};

use self::folders::Folders;
use crate::folder::check_parts;
use crate::health::encoded_stripes;
use crate::members::block_at;
use crate::parity::{best, evidence};
use crate::policy::{check_file, check_storing};
use crate::protection::{parity_totals, parity_units};
use crate::stray::Strays;
use crate::stripe_codes::BuiltCode;
use crate::{
    Arrangement, Block, Cluster, Codec, Damage, Exclusion, File, Folder, Health, Judge, Layout, Listing,
    Load, Member, Members, NodeIndex, ParityState, ParityUnit, Policies, Protection, RaidPolicy, Scope,
    StaleParity, State, StripeCodes, StripeHealth, TooFewNodes, parity_path,
};

/// The states of all files in a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// The files, and the folders whose files are encoded together.
    pub units: Vec<Unit>,
    /// The parity files, which are among the units too.
    pub parity: Vec<ParityUnit>,
}

/// A file, or a folder whose files are encoded together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The path of the file or folder.
    pub path: String,
    /// The paths of the encoded files, in the order in which HDFS lists them.
    pub files: Vec<String>,
    /// The policy, if one covers the unit.
    pub policy: Option<String>,
    /// The codec of the parity, or the one that the policy requires.
    pub codec: Option<String>,
    /// The state.
    pub state: State,
    /// The length of all files in bytes.
    pub bytes: u64,
    /// Bytes of all replicas and of the present parity file, unless it is another file's; 0 for a parity file that
    /// another unit includes.
    pub stored: u64,
    /// Bytes of all replicas and of the parity once the policy is fulfilled; `stored` if nothing is to be done.
    pub target: u64,
    /// The stripes to encode, or those that are misplaced.
    pub stripes: Vec<StripePlan>,
    /// The present parity.
    pub protection: Option<Protection>,
    /// Missing blocks and crowded stripes, whatever the state is.
    pub health: Health,
    /// Mend leaves an encoded file as it is, in any state, if it is open, in the trash, below a folder with snapshots,
    /// or in a folder whose files the coordinator does not repair. Other files there are not encoded.
    pub held: Option<Exclusion>,
    /// Whether the coordinator does not repair the file or folder.
    pub is_outside: bool,
}

/// The space that encoded files take, and took before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Saving {
    /// Number of files.
    pub files: u64,
    /// The length of all files in bytes.
    pub bytes: u64,
    /// Bytes of all replicas before the files were encoded.
    pub before: u64,
    /// Bytes of all replicas and of parity now.
    pub after: u64,
}

/// The placement of a stripe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripePlan {
    /// The stripe's position in its unit.
    pub stripe: usize,
    /// The data blocks; `file` is a position in [`Unit::files`].
    pub members: Vec<Member>,
    /// For each block of the stripe, the DataNodes with a replica: data blocks, then parity blocks.
    pub replicas: Vec<Vec<NodeIndex>>,
    /// The seats of these blocks.
    pub arrangement: Arrangement,
    /// Whether the stripe will survive the loss of a rack.
    pub is_rack_safe: bool,
}

/// The sums of all units in one state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// Number of files.
    pub files: u64,
    /// The length of all files in bytes.
    pub bytes: u64,
    /// Bytes of all replicas and parity files.
    pub stored: u64,
    /// Bytes of all replicas and parity files once the policies are fulfilled.
    pub target: u64,
}

impl Survey {
    /// Returns the sums per state, by the [names](State::name) of the states.
    pub fn totals(&self) -> BTreeMap<&'static str, Total> {
        let mut totals: BTreeMap<&'static str, Total> = BTreeMap::new();
        for unit in &self.units {
            let total = totals.entry(unit.state.name()).or_default();
            total.files += unit.files.len() as u64;
            total.bytes += unit.bytes;
            total.stored += unit.stored;
            total.target += unit.target;
        }
        totals
    }

    /// Returns the sums per state of parity files, by the [names](ParityState::name) of the states.
    pub fn parity_totals(&self) -> BTreeMap<&'static str, Total> {
        parity_totals(&self.parity)
    }

    /// Returns the sums of missing blocks and crowded stripes.
    pub fn health(&self) -> Health {
        let mut sum = Health::default();
        self.units.iter().for_each(|unit| sum.add(&unit.health));
        sum
    }

    /// Returns the space that files with valid parity take.
    pub fn saving(&self) -> Saving {
        let mut saving = Saving::default();
        for unit in &self.units {
            if let Some(protection) = unit.protection.as_ref().filter(|it| it.state.is_valid()) {
                saving.files += unit.files.len() as u64;
                saving.bytes += unit.bytes;
                saving.before += unit.bytes * u64::from(protection.former_replication);
                saving.after += unit.stored;
            }
        }
        saving
    }
}

impl Unit {
    /// Returns the path of the unit's parity if the file was renamed without it.
    pub fn stray(&self) -> Option<&str> {
        let is_stray = |protection: &&Protection| matches!(protection.state, ParityState::Renamed(_));
        self.protection.as_ref().filter(is_stray).map(|protection| protection.path.as_str())
    }
}

impl Saving {
    /// Returns the saved space in percent of the former space; negative if more is stored now.
    pub fn percent(&self) -> f64 {
        match self.before {
            0 => 0.0,
            before => (before as f64 - self.after as f64) / before as f64 * 100.0,
        }
    }
}

impl StripePlan {
    /// Returns the number of blocks that have to move, whichever replicas HDFS removes.
    pub fn moves(&self) -> usize {
        self.arrangement.moves(&self.replicas).len()
    }
}

/// Determines the state of every file in a listing at the time `now_ms` (in milliseconds since 1970), and plans
/// the placement of the files to encode. The listing must contain the files below the parity roots; without
/// them, encoded files look as if they were not.
pub fn survey(listing: &Listing, policies: &Policies, now_ms: u64) -> Survey {
    let mut surveyor = Surveyor::new(listing, policies, now_ms);
    let mut units = Vec::new();
    let mut folders = BTreeSet::new();
    for file in &listing.files {
        match surveyor.encoding_of(file) {
            Ok((Scope::File, encoding)) => units.push(surveyor.file(file, encoding)),
            Ok((Scope::Folder, encoding)) => drop(folders.insert((file.folder(), encoding.codec_name()))),
            Err(why) => units.push(excluded(&file.path, &[file], why)),
        }
    }
    for (folder, codec) in folders {
        units.extend(surveyor.folder(folder, codec));
    }
    units.sort_by(|one, other| one.path.cmp(&other.path));
    finish(units, listing, policies)
}

/// Adds the parity files, except those that are counted with a unit already.
fn finish(mut units: Vec<Unit>, listing: &Listing, policies: &Policies) -> Survey {
    let used = units.iter().filter_map(|unit| unit.protection.clone());
    let used: Vec<Protection> = used.collect();
    let included: BTreeSet<&str> =
        used.iter().filter(|it| !it.is_foreign()).map(|protection| protection.path.as_str()).collect();
    let used: BTreeMap<&str, &ParityState> =
        used.iter().map(|protection| (protection.path.as_str(), &protection.state)).collect();
    for unit in &mut units {
        let is_parity = matches!(unit.state, State::Excluded(Exclusion::Parity(_)));
        if is_parity && included.contains(unit.path.as_str()) {
            (unit.stored, unit.target) = (0, 0);
        }
    }
    let parity = parity_units(listing, policies, &used, &protected(&units, listing));
    Survey { parity, units }
}

/// Returns the inodes of the files and folders with valid parity.
fn protected(units: &[Unit], listing: &Listing) -> BTreeSet<u64> {
    let is_valid = |unit: &&Unit| unit.protection.as_ref().is_some_and(|it| it.state.is_valid());
    let paths: BTreeSet<&String> =
        units.iter().filter(is_valid).flat_map(|unit| unit.files.iter().chain([&unit.path])).collect();
    let files = listing.files.iter().map(|file| (&file.path, file.inode));
    let all = files.chain(listing.folders.iter().map(|folder| (&folder.path, folder.inode)));
    all.filter(|(path, _)| paths.contains(path)).map(|(_, inode)| inode).collect()
}

/// How a unit is or will be encoded.
#[derive(Clone, Copy)]
struct Encoding<'a> {
    codec: &'a Codec,
    policy: Option<&'a RaidPolicy>,
    /// The parity file.
    parity: Option<&'a File>,
    /// Whether the parity file is at the path that belongs to the source's former name.
    is_stray: bool,
}

/// A file, or a folder with the files that are encoded together.
pub(crate) struct Source<'a> {
    pub(crate) path: &'a str,
    pub(crate) inode: u64,
    pub(crate) modified_ms: u64,
    pub(crate) files: Vec<&'a File>,
    pub(crate) layout: Layout,
}

impl<'a> Source<'a> {
    pub(crate) fn of_file(file: &'a File, layout: Layout) -> Self {
        let File { path, inode, modified_ms, .. } = file;
        Self { path, inode: *inode, modified_ms: *modified_ms, files: vec![file], layout }
    }

    pub(crate) fn of_folder(folder: &'a Folder, files: Vec<&'a File>, layout: Layout) -> Self {
        Self { path: &folder.path, inode: folder.inode, modified_ms: folder.modified_ms, files, layout }
    }

    /// Returns the data blocks in the order of the stripes.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = &'a Block> + '_ {
        self.layout.members().iter().map(|&member| block_at(&self.files, member))
    }
}

struct Surveyor<'a> {
    listing: &'a Listing,
    policies: &'a Policies,
    now_ms: u64,
    by_path: BTreeMap<&'a str, &'a File>,
    folders: Folders<'a>,
    cluster: Cluster,
    judge: Judge,
    load: Load,
    codes: BTreeMap<&'a str, BuiltCode>,
    strays: Strays<'a>,
}

impl<'a> Encoding<'a> {
    fn codec_name(&self) -> &'a str {
        &self.codec.name
    }
}

impl<'a> Surveyor<'a> {
    fn new(listing: &'a Listing, policies: &'a Policies, now_ms: u64) -> Self {
        Self {
            listing,
            policies,
            now_ms,
            by_path: listing.files.iter().map(|file| (file.path.as_str(), file)).collect(),
            folders: Folders::of(listing, policies),
            cluster: Cluster::new(&listing.nodes),
            judge: Judge::of(listing),
            load: load_of(listing),
            codes: BuiltCode::all(policies),
            strays: Strays::of(listing),
        }
    }

    /// Returns how a file is encoded, or should be. A file with parity is encoded, also if it would not be now.
    fn encoding_of(&self, file: &'a File) -> Result<(Scope, Encoding<'a>), Exclusion> {
        if let Some(root) = self.policies.parity_root_of(&file.path) {
            return Err(Exclusion::Parity(root.to_owned()));
        }
        check_storing(file)?;
        let policy = self.policies.policy_of(file);
        let own = policy.as_ref().ok().copied();
        if let Some((codec, parity, is_stray)) = self.parity_of(file, own) {
            let policy = own.filter(|policy| policy.codec == codec.name);
            return Ok((codec.scope, Encoding { codec, policy, parity: Some(parity), is_stray }));
        }
        check_file(self.listing, file)?;
        let policy = policy?;
        let codec = self.policies.codec_of(policy);
        Ok((codec.scope, Encoding { codec, policy: Some(policy), parity: None, is_stray: false }))
    }

    /// Chooses the parity of a file, and returns whether the file was renamed without it. Valid parity counts first, then
    /// parity of the present contents at the path of a former name, then what is at the path of the parity, unless this
    /// belongs to another file; then parity of former contents at the path of a former name.
    fn parity_of(&self, file: &File, policy: Option<&RaidPolicy>) -> Option<(&'a Codec, &'a File, bool)> {
        if let Some((codec, parity)) = self.folders.parity_covering(file) {
            return Some((codec, parity, false));
        }
        let codecs = self.policies.codecs().iter();
        let mut present: Vec<(&Codec, &File)> =
            codecs.clone().filter_map(|codec| Some((codec, self.parity_at(codec, file)?))).collect();
        let valid =
            present.iter().filter(|(codec, _)| codec.scope == Scope::File).filter_map(|&(codec, parity)| {
                let noted = self.listing.notes.noted(&parity.path);
                Some((evidence(codec, file, parity, noted)?, (codec, parity)))
            });
        if let Some((codec, parity)) = best(valid) {
            return Some((codec, parity, false));
        }
        let is_foreign = |parity: &File| self.listing.notes.foreign(file.inode, &parity.path).is_some();
        let others = codecs.filter(|codec| {
            let mut own = present.iter().filter(|(other, _)| other.name == codec.name);
            codec.scope == Scope::File && own.all(|(_, parity)| is_foreign(parity))
        });
        let strays: Vec<(&Codec, &File)> =
            others.filter_map(|codec| Some((codec, self.strays.find(codec, file)?))).collect();
        let is_current = |(codec, parity): &&(&Codec, &File)| self.strays.is_current(codec, file, parity);
        let has_own = present.iter().any(|(_, parity)| !is_foreign(parity));
        let former = strays.first().filter(|_| !has_own);
        if let Some(&(codec, parity)) = strays.iter().find(is_current).or(former) {
            return Some((codec, parity, true));
        }
        if let Some(&(codec, parity)) = self.folders.strays.get(file.folder()) {
            return Some((codec, parity, true));
        }
        // Parity by the policy's own codec comes first: other parity is left from an earlier policy.
        present.sort_by_key(|(codec, parity)| {
            let is_other = policy.is_none_or(|policy| policy.codec != codec.name);
            (!self.folders.has_parity(file.folder(), parity), is_other)
        });
        present.first().map(|&(codec, parity)| (codec, parity, false))
    }

    /// Returns the file at the path of a file's parity, or of the parity of its folder.
    fn parity_at(&self, codec: &Codec, file: &File) -> Option<&'a File> {
        let source = match codec.scope {
            Scope::File => file.path.as_str(),
            Scope::Folder => file.folder(),
        };
        self.by_path.get(parity_path(&codec.parity_root, source).as_str()).copied()
    }

    fn file(&mut self, file: &'a File, encoding: Encoding<'a>) -> Unit {
        match Layout::of_file(file, encoding.codec) {
            Ok(layout) => self.unit(Source::of_file(file, layout), encoding),
            Err(why) => {
                let held = check_file(self.listing, file).err();
                match encoding.parity {
                    Some(parity) => {
                        self.irregular(file, parity, encoding, held.or_else(|| self.outside(&file.path)))
                    }
                    None => excluded(&file.path, &[file], held.unwrap_or_else(|| why.into())),
                }
            }
        }
    }

    /// Returns the state of a file with parity whose blocks do not form stripes any more.
    fn irregular(
        &self,
        file: &'a File,
        parity: &'a File,
        encoding: Encoding<'a>,
        held: Option<Exclusion>,
    ) -> Unit {
        let health = Health::behind_stale_parity(&[file]);
        let (protection, why) = self.listing.notes.irregular(file, parity);
        let state = match health.unprotected {
            0 => State::Stale(why),
            unprotected => State::Damaged(Damage { unprotected, ..Damage::default() }),
        };
        let stored = replicated(&[file], u16::MAX) + included_bytes(Some(&protection), Some(parity));
        Unit {
            path: file.path.clone(),
            files: vec![file.path.clone()],
            policy: encoding.policy.map(|policy| policy.name.clone()),
            codec: Some(encoding.codec.name.clone()),
            state,
            bytes: file.bytes,
            stored,
            target: stored,
            stripes: Vec::new(),
            protection: Some(protection),
            health,
            held,
            is_outside: !self.listing.is_repaired(&file.path),
        }
    }

    fn unit(&mut self, source: Source<'a>, encoding: Encoding<'a>) -> Unit {
        let mut held = encoding.parity.and_then(|_| self.held(&source));
        let Examined { state, stripes, protection, health } = self.examine(&source, encoding, held.is_some());
        if state == State::ShouldEncode {
            held = self.outside(source.path);
        }
        let parity = included_bytes(protection.as_ref(), encoding.parity);
        let stored = replicated(&source.files, u16::MAX) + parity;
        let target = match (&state, encoding.policy) {
            (State::ShouldEncode | State::Stale(_) | State::NotLowered, Some(policy)) if held.is_none() => {
                target(&source, policy)
            }
            _ => stored,
        };
        Unit {
            path: source.path.to_owned(),
            files: source.files.iter().map(|file| file.path.clone()).collect(),
            policy: encoding.policy.map(|policy| policy.name.clone()),
            codec: Some(encoding.codec.name.clone()),
            state,
            bytes: source.files.iter().map(|file| file.bytes).sum(),
            stored,
            target,
            stripes,
            protection,
            health,
            held,
            is_outside: !self.listing.is_repaired(source.path),
        }
    }

    /// Returns why encoded files are left as they are.
    fn held(&self, source: &Source<'a>) -> Option<Exclusion> {
        let excluded = source.files.iter().find_map(|file| check_file(self.listing, file).err());
        excluded.or_else(|| self.outside(source.path))
    }

    /// Returns that the coordinator does not repair a file or folder, if so.
    fn outside(&self, path: &str) -> Option<Exclusion> {
        (!self.listing.is_repaired(path)).then_some(Exclusion::Outside)
    }

    fn examine(&mut self, source: &Source<'a>, encoding: Encoding<'a>, is_held: bool) -> Examined {
        let Some(parity) = encoding.parity else {
            return self.examine_replicated(source, encoding);
        };
        let protection = match encoding.is_stray {
            true => self.listing.notes.renamed(source, parity),
            false => self.protection(encoding.codec, source, parity),
        };
        let stale = match protection.state {
            ParityState::Stale(why) => Some(why),
            ParityState::Renamed(_) => Some(StaleParity::Elsewhere),
            _ => None,
        };
        if let Some(why) = stale {
            let protected = self.still_protected(source, parity, encoding.codec);
            let health = Health::behind_stale_parity(&source.files).with_still_protected(protected);
            let (state, stripes) = match health.unprotected {
                0 if is_held || encoding.is_stray => (State::Stale(why), Vec::new()),
                0 => (State::Stale(why), self.plan(source, encoding).unwrap_or_default()),
                unprotected => (State::Damaged(Damage { unprotected, ..Damage::default() }), Vec::new()),
            };
            return Examined { state, stripes, protection: Some(protection), health };
        }
        let found = encoded_stripes(
            &source.files,
            &source.layout,
            parity,
            &self.codes[encoding.codec_name()],
            &self.judge,
        );
        let health = Health::of(&found);
        let (state, stripes) = self.encoded_state(source, encoding, &found, &health);
        Examined { state, stripes, protection: Some(protection), health }
    }

    fn examine_replicated(&mut self, source: &Source<'a>, encoding: Encoding<'a>) -> Examined {
        let (state, stripes) = match self.plan(source, encoding) {
            Ok(stripes) => (State::ShouldEncode, stripes),
            Err(why) => (State::Excluded(lost_block(&source.files).unwrap_or(why)), Vec::new()),
        };
        Examined { state, stripes, protection: None, health: Health::without_parity(&source.files) }
    }

    /// Returns the state of a unit with valid parity, and the misplaced stripes.
    fn encoded_state(
        &mut self,
        source: &Source<'a>,
        encoding: Encoding<'a>,
        stripes: &[StripeHealth<'_>],
        health: &Health,
    ) -> (State, Vec<StripePlan>) {
        if health.incomplete() > 0 {
            let unrecoverable = health.unrecoverable;
            let repairable = health.incomplete() - unrecoverable;
            let damage = Damage { repairable, unrecoverable, unprotected: 0 };
            return (State::Damaged(damage), Vec::new());
        }
        let unrepairable = || {
            let built = &self.codes[encoding.codec_name()];
            let check = |stripe: &StripeHealth<'_>| {
                built.check(stripe.blocks.iter().copied(), stripe.members.len(), &[])
            };
            stripes.iter().find_map(|stripe| check(stripe).err())
        };
        let is_single = source.files.iter().any(|file| file.replication <= 1);
        if let Some(why) = is_single.then(unrepairable).flatten() {
            return (State::Unrepairable(why), Vec::new());
        }
        let is_high =
            |policy: &RaidPolicy| source.files.iter().any(|file| file.replication > policy.replication);
        if encoding.policy.is_some_and(is_high) {
            return (State::NotLowered, Vec::new());
        }
        let crowded = stripes.iter().filter(|stripe| stripe.crowding.is_some());
        let crowded: Vec<Stripe> =
            crowded.map(|stripe| (stripe.stripe, stripe.members.clone(), stripe.replicas())).collect();
        match crowded.len() {
            0 => (State::Raided, Vec::new()),
            misplaced => {
                // There are no seats if there are too few DataNodes. The stripes are misplaced all the same.
                let plans = self.arrange(encoding.codec_name(), crowded).unwrap_or_default();
                (State::Misplaced(misplaced), plans)
            }
        }
    }

    /// Plans the encoding of a unit.
    fn plan(&mut self, source: &Source<'a>, encoding: Encoding<'a>) -> Result<Vec<StripePlan>, Exclusion> {
        let policy = encoding.policy.ok_or(Exclusion::NoPolicy)?;
        let codes = &self.codes[encoding.codec_name()].stripes;
        check_source(source, policy, encoding.codec, codes, self.now_ms)?;
        let parities = encoding.codec.parity_blocks();
        let stripes = source.layout.stripes().enumerate().map(|(stripe, members)| {
            let mut replicas = data_replicas(&source.files, members);
            replicas.resize(members.len() + parities, Vec::new());
            (stripe, members.to_vec(), replicas)
        });
        let stripes = stripes.collect();
        Ok(self.arrange(encoding.codec_name(), stripes)?)
    }

    /// Finds seats for the blocks of stripes.
    fn arrange(&mut self, codec: &str, stripes: Vec<Stripe>) -> Result<Vec<StripePlan>, TooFewNodes> {
        let tolerated = self.codes[codec].tolerated;
        let mut plans = Vec::with_capacity(stripes.len());
        for (stripe, members, replicas) in stripes {
            let spread = self.cluster.spread(replicas.len(), tolerated)?;
            let arrangement = spread.arrange(&replicas, &mut self.load);
            let is_rack_safe = spread.is_rack_safe();
            plans.push(StripePlan { stripe, members, replicas, arrangement, is_rack_safe });
        }
        Ok(plans)
    }
}

/// The position of a stripe, its data blocks, and the DataNodes with replicas of each of its blocks.
type Stripe = (usize, Vec<Member>, Vec<Vec<NodeIndex>>);

/// The findings about a unit.
struct Examined {
    state: State,
    stripes: Vec<StripePlan>,
    protection: Option<Protection>,
    health: Health,
}

/// Checks that a policy allows to encode a file or folder now.
///
/// # Errors
/// [`Exclusion`].
pub(crate) fn check_source(
    source: &Source<'_>,
    policy: &RaidPolicy,
    codec: &Codec,
    codes: &StripeCodes,
    now_ms: u64,
) -> Result<(), Exclusion> {
    let newest = source.files.iter().map(|file| file.modified_ms).max();
    let modified_ms = newest.map_or(source.modified_ms, |newest| newest.max(source.modified_ms));
    policy.check(now_ms, modified_ms, source.layout.members().len() as u64)?;
    if codec.scope == Scope::Folder {
        check_parts(&source.files)?;
        if !Members::of(source.blocks()).fits() {
            return Err(Exclusion::ManyBlocks { blocks: source.layout.members().len() });
        }
    }
    let least = policy.min_bytes(codec.scope);
    if let Some(file) = source.files.iter().find(|file| file.bytes < least) {
        return Err(Exclusion::Small { bytes: file.bytes, least });
    }
    if let Some(lost) = lost_block(&source.files) {
        return Err(lost);
    }
    // All other stripes have as many data blocks as the code.
    let last = source.layout.stripes().last().map_or(0, <[Member]>::len);
    codes.code(codec, source.blocks(), last, &[])?;
    // Files of a folder that has changed get the highest replication again before the folder is encoded.
    let highest = source.files.iter().map(|file| file.replication).max().unwrap_or(0);
    let bytes: u64 = source.files.iter().map(|file| file.bytes).sum();
    let (before, after) = (bytes * u64::from(highest), target(source, policy));
    if highest > policy.replication && after >= before {
        Err(Exclusion::NoSaving { before, after })
    } else {
        Ok(())
    }
}

pub(crate) fn load_of(listing: &Listing) -> Load {
    let mut load = Load::new(listing.nodes.len());
    let blocks = listing.files.iter().flat_map(|file| &file.blocks);
    blocks.flat_map(|block| &block.replicas).for_each(|&node| load.add(node));
    load
}

/// Returns the first block of files that has no intact replica.
fn lost_block(files: &[&File]) -> Option<Exclusion> {
    files.iter().find_map(|file| {
        let block = file.missing_block()?;
        Some(Exclusion::Lost { path: file.path.clone(), block })
    })
}

/// Returns the unit of files that are not encoded. A lost block is reported whatever else excludes them. The blocks
/// of parity are counted in the stripes of its source.
fn excluded(path: &str, files: &[&File], why: Exclusion) -> Unit {
    let stored = replicated(files, u16::MAX);
    let is_parity = matches!(why, Exclusion::Parity(_));
    let lost = if is_parity { None } else { lost_block(files) };
    let health = if is_parity { Health::default() } else { Health::without_parity(files) };
    Unit {
        path: path.to_owned(),
        files: files.iter().map(|file| file.path.clone()).collect(),
        policy: None,
        codec: None,
        state: State::Excluded(lost.unwrap_or(why)),
        bytes: files.iter().map(|file| file.bytes).sum(),
        stored,
        target: stored,
        stripes: Vec::new(),
        protection: None,
        health,
        held: None,
        is_outside: false,
    }
}

/// Returns the bytes of all replicas of files if the replication is at most this high.
fn replicated(files: &[&File], at_most: u16) -> u64 {
    files.iter().map(|file| file.bytes * u64::from(file.replication.min(at_most))).sum()
}

/// Returns the bytes of a file's parity. Parity of another file, which was renamed, is included there.
fn included_bytes(protection: Option<&Protection>, parity: Option<&File>) -> u64 {
    let is_own = protection.is_none_or(|protection| !protection.is_foreign());
    parity.filter(|_| is_own).map_or(0, |parity| parity.bytes * u64::from(parity.replication))
}

/// Returns the bytes of replicas and parity once a policy is fulfilled.
fn target(source: &Source<'_>, policy: &RaidPolicy) -> u64 {
    let parity = source.layout.parity_bytes() * u64::from(policy.parity_replication);
    replicated(&source.files, policy.replication) + parity
}

/// Returns the DataNodes with replicas of data blocks.
pub(crate) fn data_replicas(files: &[&File], members: &[Member]) -> Vec<Vec<NodeIndex>> {
    members.iter().map(|member| files[member.file].blocks[member.block].replicas.clone()).collect()
}
