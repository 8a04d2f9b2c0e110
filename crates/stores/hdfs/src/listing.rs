//! What a NameNode says, as values; the lines that it comes in are drawn in `java/hdfs`, `mend.hdfs.namenode.Survey`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::{FromStr, SplitAsciiWhitespace};

use crate::blocks::{BlockGroup, MAX_BLOCKS_IN_GROUP, Policy};
use repair::Permit;

/// An answer: of everything, of the DataNodes alone, or of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The DataNodes that are named, in the order in which groups count them.
    pub nodes: Vec<DataNode>,
    /// Block groups that nobody writes to.
    pub groups: Vec<Group>,
    /// Whether the NameNode is in safe mode: it has yet to hear from its DataNodes, and what it says is not all.
    pub safe_mode: bool,
    /// Groups that Mend cannot repair, by the reason.
    pub refused: BTreeMap<String, usize>,
    /// Block tokens that were asked for, by the index in their group.
    pub tokens: Vec<(u8, Permit)>,
    /// How far the walk is, while it goes on.
    pub progress: Progress,
    /// Snapshots, and how much only they hold.
    pub snapshots: Snapshots,
    /// The paths of files that only snapshots hold, by their inode numbers.
    held: BTreeMap<u64, String>,
}

/// How far a walk through the namespace is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Folders that were listed.
    pub folders: u64,
    /// Files that were seen, with groups or without.
    pub files: u64,
}

/// Counts of snapshots, and of files that only they hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshots {
    /// Folders of which snapshots may be taken.
    pub folders: u64,
    /// Snapshots of them.
    pub snapshots: u64,
    /// Files with block groups that were deleted and are in a snapshot. Their groups are listed like others.
    pub files: u64,
    /// Folders whose deleted files are not listed, and why.
    pub uncovered: Vec<(String, String)>,
}

/// A file, as the NameNode is asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRef {
    /// Its inode number, by which it is asked for whatever it is called by now.
    pub inode: u64,
    /// Its encoded path in a snapshot, if no folder has it any more.
    pub held_at: Option<String>,
}

impl fmt::Display for FileRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.held_at {
            Some(path) => f.write_str(path),
            None => write!(f, "{}", self.inode),
        }
    }
}

/// How sure it is that DataNodes have told of the blocks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Somebody writes to the file.
    Open,
    /// It was closed a moment ago, or nothing is known of that.
    New,
    /// It was closed long ago.
    Old,
}

/// A DataNode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataNode {
    /// Names it for ever.
    pub uuid: String,
    /// Where it serves blocks, `IP:PORT`.
    pub address: String,
    /// How it is; `None` in answers about groups alone.
    pub standing: Option<Standing>,
    /// Its folders, `dfs.datanode.data.dir`; empty in answers that do not tell of them.
    pub folders: Vec<PathBuf>,
    /// Why it does not say which folders it has.
    pub silent: Option<String>,
}

/// How a DataNode is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Where it stands, as the NameNode's topology has it.
    pub rack: String,
    /// Whether the NameNode hears from it.
    pub live: bool,
    /// What operators want of it.
    pub service: Service,
    /// When it last told the NameNode of all its blocks, by a clock of the NameNode's; 0 if it never did.
    pub reported: u64,
}

/// What operators want of a DataNode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// That it serves.
    Normal,
    /// It is being decommissioned, or has been.
    Leaving,
    /// It may be away for a while.
    Maintenance,
}

/// A block group, and who has its blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its file.
    pub file: FileRef,
    /// Whether its file was written to lately.
    pub phase: Phase,
    /// Where it begins in the file.
    pub start: u64,
    /// The group.
    pub group: BlockGroup,
    /// The index in the group, and the DataNode by its place in [`Listing::nodes`], of each block that the NameNode
    /// counts as good.
    pub homes: Vec<(u8, usize)>,
}

/// A line that is none of an answer. What may be a token is not quoted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no line of an answer")]
pub struct BadLine(pub String);

impl Listing {
    /// Takes in a line.
    ///
    /// # Errors
    /// [`BadLine`]; the answer is of no use then.
    pub fn take(&mut self, line: &str) -> Result<(), BadLine> {
        let taken = match line.split_once(' ') {
            Some(("v", rest)) => self.take_folder(rest),
            Some(("w", rest)) => self.take_silence(rest),
            Some(("x", rest)) => self.take_uncovered(rest),
            Some(("t", rest)) => return self.take_token(rest).ok_or_else(|| BadLine("t …".to_owned())),
            _ => self.take_words(line.split_ascii_whitespace()),
        };
        taken.ok_or_else(|| BadLine(line.to_owned()))
    }

    fn take_folder(&mut self, text: &str) -> Option<()> {
        let (node, folder) = text.split_once(' ')?;
        self.nodes.get_mut(node.parse::<usize>().ok()?)?.folders.push(folder.into());
        Some(())
    }

    fn take_silence(&mut self, text: &str) -> Option<()> {
        let (node, why) = text.split_once(' ')?;
        self.nodes.get_mut(node.parse::<usize>().ok()?)?.silent = Some(why.to_owned());
        Some(())
    }

    fn take_token(&mut self, text: &str) -> Option<()> {
        let (index, token) = text.split_once(' ')?;
        self.tokens.push((index_in_group(index)?, token.parse().ok()?));
        Some(())
    }

    fn take_uncovered(&mut self, text: &str) -> Option<()> {
        let (folder, why) = text.split_once(' ')?;
        self.snapshots.uncovered.push((decoded(folder)?, why.to_owned()));
        Some(())
    }

    fn take_words(&mut self, mut words: SplitAsciiWhitespace<'_>) -> Option<()> {
        match words.next()? {
            "safe" => self.safe_mode = true,
            "n" => self.take_node(&mut words)?,
            "d" => self.take_standing(&mut words)?,
            "g" => self.take_group(&mut words)?,
            "a" => {
                self.progress = Progress { folders: number(&mut words)?, files: number(&mut words)? };
            }
            "p" => {
                let (file, path) = (number(&mut words)?, words.next()?);
                self.held.insert(file, path.to_owned());
            }
            "s" => {
                let snapshots = &mut self.snapshots;
                snapshots.folders = number(&mut words)?;
                snapshots.snapshots = number(&mut words)?;
                snapshots.files = number(&mut words)?;
            }
            _ => return None,
        }
        words.next().is_none().then_some(())
    }

    fn take_node(&mut self, words: &mut SplitAsciiWhitespace<'_>) -> Option<()> {
        if number::<usize>(words)? != self.nodes.len() {
            return None;
        }
        let (uuid, address) = (words.next()?.to_owned(), words.next()?.to_owned());
        self.nodes.push(DataNode { uuid, address, standing: None, folders: Vec::new(), silent: None });
        Some(())
    }

    fn take_standing(&mut self, words: &mut SplitAsciiWhitespace<'_>) -> Option<()> {
        let node = self.nodes.get_mut(number::<usize>(words)?)?;
        let rack = words.next()?.to_owned();
        let live = match words.next()? {
            "live" => true,
            "dead" => false,
            _ => return None,
        };
        let service = match words.next()? {
            "normal" => Service::Normal,
            "leaving" => Service::Leaving,
            "maintenance" => Service::Maintenance,
            _ => return None,
        };
        node.standing = Some(Standing { rack, live, service, reported: number(words)? });
        Some(())
    }

    fn take_group(&mut self, words: &mut SplitAsciiWhitespace<'_>) -> Option<()> {
        let (file, start) = (number(words)?, number(words)?);
        let (number, stamp, bytes) = (number(words)?, number(words)?, number(words)?);
        let (policy, phase, homes) = (words.next()?, words.next()?, words.next()?);
        let phase = match phase {
            "open" => Phase::Open,
            "new" => Phase::New,
            "old" => Phase::Old,
            _ => return None,
        };
        let file = FileRef { inode: file, held_at: self.held.get(&file).cloned() };
        let homes = match homes {
            "-" => Vec::new(),
            homes => homes.split(',').map(|home| self.home(home)).collect::<Option<_>>()?,
        };
        match policy.parse::<Policy>() {
            Ok(policy) => {
                let group = BlockGroup { number, stamp, bytes, policy };
                self.groups.push(Group { file, phase, start, group, homes });
            }
            Err(error) => *self.refused.entry(error.to_string()).or_default() += 1,
        }
        Some(())
    }

    fn home(&self, text: &str) -> Option<(u8, usize)> {
        let (index, node) = text.split_once(':')?;
        let node = node.parse().ok().filter(|&node| node < self.nodes.len())?;
        Some((index_in_group(index)?, node))
    }
}

/// A path that was encoded as one word, for people.
fn decoded(path: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            other => other,
        });
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn index_in_group(text: &str) -> Option<u8> {
    text.parse().ok().filter(|&index: &u8| u16::from(index) < MAX_BLOCKS_IN_GROUP)
}

fn number<T: FromStr>(words: &mut SplitAsciiWhitespace<'_>) -> Option<T> {
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read() {
        let mut listing = Listing::default();
        for line in [
            "safe",
            "n 0 uuid-a 10.0.0.1:9866",
            "d 0 /default-rack live leaving 12",
            "v 0 /data/disk 1",
            "n 1 uuid-b 10.0.0.2:9866",
            "w 1 access is refused",
            "a 900 12",
            "g 16390 0 -9223372036854775792 1001 1500 RS-6-3-1024k old 0:0,6:1",
            "g 16391 0 -9223372036854775776 1002 7 HHXOR-6-3-1024k new -",
            "p 16392 %2Fa+b%2F.snapshot%2Fs1%2Ff",
            "g 16392 0 -9223372036854775760 1003 7 RS-6-3-1024k open -",
            "s 2 5 1",
            "x %2Fa+b%C3%A4 no permission",
            "t 8 c2VjcmV0",
        ] {
            listing.take(line).expect(line);
        }
        assert!(listing.safe_mode);
        let standing = listing.nodes[0].standing.as_ref().expect("told");
        assert_eq!((standing.live, standing.service, standing.reported), (true, Service::Leaving, 12));
        assert_eq!(listing.nodes[0].folders, [PathBuf::from("/data/disk 1")]);
        assert_eq!(listing.nodes[1].standing, None);
        assert_eq!(listing.nodes[1].silent.as_deref(), Some("access is refused"));
        assert_eq!(listing.groups.len(), 2);
        assert_eq!(listing.groups[0].homes, [(0, 0), (6, 1)]);
        assert_eq!(listing.groups[0].group.stamp, 1001);
        assert_eq!(listing.groups[0].file.to_string(), "16390");
        assert_eq!((listing.groups[0].phase, listing.groups[1].phase), (Phase::Old, Phase::Open));
        assert_eq!(listing.groups[1].file.to_string(), "%2Fa+b%2F.snapshot%2Fs1%2Ff");
        assert_eq!(listing.progress, Progress { folders: 900, files: 12 });
        let uncovered = vec![("/a bä".to_owned(), "no permission".to_owned())];
        assert_eq!(listing.snapshots, Snapshots { folders: 2, snapshots: 5, files: 1, uncovered });
        assert_eq!(listing.refused.values().sum::<usize>(), 1);
        assert_eq!(listing.tokens, [(8, Permit::new(b"secret".to_vec()).expect("short"))]);
    }

    #[test]
    fn what_is_no_line_is_refused() {
        let mut listing = Listing::default();
        listing.take("n 0 uuid-a 10.0.0.1:9866").expect("a line");
        for line in [
            "",
            "x",
            "v 1 /data",
            "w 0",
            "n 2 uuid-b a:1",
            "n 1 uuid-b",
            "d 1 /r live normal 0",
            "d 0 /r up normal 0",
            "d 0 /r live odd 0",
            "g 1 0 -16 1 5 RS-6-3-1024k old 0:1",
            "g 1 0 -16 1 5 RS-6-3-1024k old 16:0",
            "g 1 0 -16 1 5 RS-6-3-1024k old 0:0 more",
            "g 1 0 -16 1 5 RS-6-3-1024k young 0:0",
            "g 1 0 -16 1 5 RS-6-3-1024k 0:0",
            "g 1 0 -16 x 5 RS-6-3-1024k old -",
            "a 1",
            "p 1",
            "s 1 2",
            "x %2 why",
            "x %2F",
        ] {
            assert_eq!(listing.take(line), Err(BadLine(line.to_owned())), "{line}");
        }
        for line in ["t 8", "t 16 c2VjcmV0", "t 8 c2VjcmV0 more", "t 8 secret!"] {
            assert_eq!(listing.take(line), Err(BadLine("t …".to_owned())), "{line} is not quoted");
        }
    }
}
