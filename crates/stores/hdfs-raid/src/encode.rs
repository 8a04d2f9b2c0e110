//! Makes the parity of a file: in a draft folder, one file per parity block, which are checked, joined and
//! renamed.
//!
//! | the draft has | next |
//! |---|---|
//! | a name for other contents of the source, or a surplus | delete it |
//! | the name of a former term | take it over |
//! | files that are not complete parity blocks | delete them |
//! | too few parity blocks | write those of one stripe |
//! | no record of the blocks of a folder | write it |
//! | no note on these blocks and the code | check them, then write the note |
//! | several files | join them |
//! | another modification time than the source | set it |
//! | all of this | rename the file to the parity path |
//!
//! The note is written before the files are joined: `concat` keeps blocks, so the note remains valid.

use std::collections::BTreeMap;

use crate::facts::{DataNodes, Draft, DraftName, Facts, MarkedFile, draft_folder};
use crate::survey::data_replicas;
use crate::work::{Work, note, unfit};
use crate::{
    Action, Block, End, Exclusion, File, Layout, Member, NewBlock, Next, NodeIndex, Storing, parity_path,
};

/// The parity blocks of a file as files in a draft.
struct Pieces<'a> {
    draft: &'a Draft,
    layout: &'a Layout,
    /// The paths of the files, in the order of the blocks.
    paths: Vec<String>,
    found: BTreeMap<&'a str, &'a MarkedFile>,
}

impl Work {
    /// Returns the next step of an encoding. `replication` is the source's replication before it was encoded.
    pub(crate) fn encode(
        &self,
        facts: &Facts,
        source: &MarkedFile,
        replication: u16,
        nodes: &DataNodes,
    ) -> Next {
        if self.is_superseded(facts) {
            return Next::End(End::Superseded);
        }
        if let Some(why) = unfit(facts) {
            return self.discard_drafts(facts, End::Unfit(why));
        }
        let layout = match Layout::of_source(&source.file, &self.codec) {
            Ok(layout) => layout,
            Err(why) => return self.discard_drafts(facts, End::Unfit(why.into())),
        };
        let draft = match self.own_draft(facts, &source.file) {
            Ok(draft) => draft,
            Err(action) => return Next::Act(action),
        };
        let pieces = Pieces::of(draft, &layout, self.codec.parity_blocks());
        if let Some(odd) = pieces.odd() {
            return Next::Act(Action::Delete(odd));
        }
        match pieces.complete() {
            Some(files) => self.finish(facts, &source.file, replication, &files, draft),
            None => self.write(facts, &source.file, &pieces, nodes),
        }
    }

    /// Returns this coordinator's draft for the present contents of the source, or the action that leads to
    /// it.
    fn own_draft<'a>(&self, facts: &'a Facts, source: &File) -> Result<&'a Draft, Action> {
        let name = DraftName { inode: source.inode, modified_ms: source.modified_ms, term: self.term };
        if let Some(old) = facts.drafts.iter().find(|draft| !draft.name.is_of(source)) {
            return Err(Action::Delete(old.path.clone()));
        }
        let own = facts.drafts.iter().find(|draft| draft.name == name);
        let former = facts.drafts.iter().find(|draft| draft.name != name);
        let path = format!("{}/{name}", draft_folder(&self.codec, &source.path));
        match (own, former) {
            (Some(own), None) => Ok(own),
            (Some(_), Some(former)) => Err(Action::Delete(former.path.clone())),
            (None, Some(former)) => Err(Action::TakeOver { from: former.path.clone(), to: path }),
            (None, None) => Err(Action::MakeFolder(path)),
        }
    }

    /// Returns the next step once all parity blocks are written.
    fn finish(
        &self,
        facts: &Facts,
        source: &File,
        replication: u16,
        files: &[&MarkedFile],
        draft: &Draft,
    ) -> Next {
        let note = note(&self.codec, source, files.iter().flat_map(|file| &file.file.blocks), replication);
        let mut paths = files.iter().map(|file| file.file.path.clone()).collect::<Vec<_>>();
        let first = files[0];
        if !first.marks.note.is_some_and(|found| found.is_about(&note)) {
            if let Some(next) = self.record(source, first) {
                return next;
            }
            // Wrong parity is made again from the start.
            let wrong = || Next::Act(Action::Delete(draft.path.clone()));
            return self.prove(note, paths).unwrap_or_else(wrong);
        }
        if paths.len() > 1 {
            let target = paths.remove(0);
            return Next::Act(Action::Join { target, sources: paths });
        }
        let (from, modified_ms) = (paths.remove(0), source.modified_ms);
        if first.file.modified_ms != modified_ms {
            return Next::Act(Action::SetTime { path: from, modified_ms });
        }
        let to = parity_path(&self.codec.parity_root, &source.path);
        Next::Act(Action::Publish { from, to, replaces: facts.parity.is_some() })
    }

    /// Returns the step that writes the missing parity blocks of a stripe.
    fn write(&self, facts: &Facts, source: &File, pieces: &Pieces<'_>, nodes: &DataNodes) -> Next {
        let (stripe, members) = pieces.unfinished();
        let mut replicas = data_replicas(&[source], members);
        let parities = pieces.layout.parity_positions(stripe);
        replicas.extend(parities.clone().map(|at| pieces.replicas(at)));
        let spread = match nodes.cluster.spread(replicas.len(), self.tolerated) {
            Ok(spread) => spread,
            Err(why) => return self.discard_drafts(facts, End::Unfit(Exclusion::Nodes(why))),
        };
        let arrangement = spread.arrange(&replicas, &mut nodes.load.clone());
        let parity_blocks = arrangement.new_blocks().filter(|&(at, _)| at >= members.len());
        let blocks = parity_blocks.map(|(at, node)| {
            let parity = at - members.len();
            let path = pieces.paths[parities.start + parity].clone();
            NewBlock { path, parity, datanode: nodes.address(node).to_owned() }
        });
        Next::Act(Action::Write { stripe, blocks: blocks.collect() })
    }
}

impl<'a> Pieces<'a> {
    fn of(draft: &'a Draft, layout: &'a Layout, parity_blocks: usize) -> Self {
        let stripes = 0..layout.stripes().len();
        let names = stripes.flat_map(|stripe| (0..parity_blocks).map(move |parity| (stripe, parity)));
        let path = |(stripe, parity): (usize, usize)| format!("{}/{stripe}-{parity}", draft.path);
        let found = draft.files.iter().map(|file| (file.file.path.as_str(), file)).collect();
        Self { draft, layout, paths: names.map(path).collect(), found }
    }

    /// Whether a file consists of this many intact parity blocks.
    fn is_whole(&self, file: &File, blocks: usize) -> bool {
        let is_full = |block: &Block| block.bytes == self.layout.block_bytes() && !block.replicas.is_empty();
        let is_usable = !file.is_open && file.storing == Storing::Replicated;
        is_usable && file.blocks.len() == blocks && file.blocks.iter().all(is_full)
    }

    /// Returns the file with all parity blocks.
    fn joined(&self) -> Option<&'a MarkedFile> {
        let first = *self.found.get(self.paths[0].as_str())?;
        self.is_whole(&first.file, self.paths.len()).then_some(first)
    }

    /// Returns the position of the parity block in a file of this path.
    fn position(&self, path: &str) -> Option<usize> {
        let (stripe, parity) = path.rsplit_once('/')?.1.split_once('-')?;
        let stripe = stripe.parse::<usize>().ok().filter(|&stripe| stripe < self.layout.stripes().len())?;
        let at = self.layout.parity_positions(stripe).nth(parity.parse().ok()?)?;
        (self.paths.get(at)? == path).then_some(at)
    }

    /// Returns the path of a file that is not a complete parity block.
    fn odd(&self) -> Option<String> {
        let joined = self.joined().map(|file| &file.file.path);
        let is_odd = |file: &&MarkedFile| match joined {
            Some(joined) => file.file.path != *joined,
            None => !self.is_whole(&file.file, 1) || self.position(&file.file.path).is_none(),
        };
        self.draft.files.iter().find(is_odd).map(|file| file.file.path.clone())
    }

    /// Returns the files that together contain all parity blocks; `None` if some are missing.
    fn complete(&self) -> Option<Vec<&'a MarkedFile>> {
        match self.joined() {
            Some(joined) => Some(vec![joined]),
            None => self.paths.iter().map(|path| self.found.get(path.as_str()).copied()).collect(),
        }
    }

    /// Returns the first stripe that lacks parity blocks, with its data blocks.
    fn unfinished(&self) -> (usize, &'a [Member]) {
        let lacks = |stripe: usize| {
            self.layout.parity_positions(stripe).any(|at| !self.found.contains_key(self.paths[at].as_str()))
        };
        let mut stripes = self.layout.stripes().enumerate();
        stripes.find(|&(stripe, _)| lacks(stripe)).expect("parity blocks are missing")
    }

    /// Returns the DataNodes with a parity block; none if it is not written yet.
    fn replicas(&self, at: usize) -> Vec<NodeIndex> {
        let file = self.found.get(self.paths[at].as_str());
        file.map(|file| file.file.blocks[0].replicas.clone()).unwrap_or_default()
    }
}
