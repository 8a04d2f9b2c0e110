//! What a NameNode says, as values; the lines that it comes in are drawn in `java/hdfs`, `mend.hdfs.namenode.Survey`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::{FromStr, SplitAsciiWhitespace};

use repair::Permit;
use stores::hdfs::{BlockGroup, MAX_BLOCKS_IN_GROUP, Policy};

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
    /// The inode number of its file.
    pub file: u64,
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

    fn take_words(&mut self, mut words: SplitAsciiWhitespace<'_>) -> Option<()> {
        match words.next()? {
            "safe" => self.safe_mode = true,
            "n" => self.take_node(&mut words)?,
            "d" => self.take_standing(&mut words)?,
            "g" => self.take_group(&mut words)?,
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
        let (policy, homes) = (words.next()?, words.next()?);
        let homes = match homes {
            "-" => Vec::new(),
            homes => homes.split(',').map(|home| self.home(home)).collect::<Option<_>>()?,
        };
        match policy.parse::<Policy>() {
            Ok(policy) => {
                let group = BlockGroup { number, stamp, bytes, policy };
                self.groups.push(Group { file, start, group, homes });
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
            "g 16390 0 -9223372036854775792 1001 1500 RS-6-3-1024k 0:0,6:1",
            "g 16391 0 -9223372036854775776 1002 7 HHXOR-6-3-1024k -",
            "g 16392 0 -9223372036854775760 1003 7 RS-6-3-1024k -",
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
            "g 1 0 -16 1 5 RS-6-3-1024k 0:1",
            "g 1 0 -16 1 5 RS-6-3-1024k 16:0",
            "g 1 0 -16 1 5 RS-6-3-1024k 0:0 more",
            "g 1 0 -16 x 5 RS-6-3-1024k -",
        ] {
            assert_eq!(listing.take(line), Err(BadLine(line.to_owned())), "{line}");
        }
        for line in ["t 8", "t 16 c2VjcmV0", "t 8 c2VjcmV0 more", "t 8 secret!"] {
            assert_eq!(listing.take(line), Err(BadLine("t …".to_owned())), "{line} is not quoted");
        }
    }
}
