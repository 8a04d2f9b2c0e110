//! Runs `hdfs fsck` and parses its output.

use super::console::Console;

/// A file in the output of fsck.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsckFile {
    /// The file's path.
    pub path: String,
    /// The file's erasure coding policy; `None` if the file is replicated.
    pub policy: Option<String>,
    /// The file's blocks or block groups.
    pub blocks: Vec<FsckBlock>,
}

/// A block or block group in the output of fsck.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsckBlock {
    /// The block pool.
    pub pool: String,
    /// The ID of the block or block group.
    pub number: i64,
    /// The generation stamp.
    pub stamp: u64,
    /// The length in bytes.
    pub bytes: u64,
    /// The live replicas or internal blocks: the block ID and the DataNode's address of each.
    pub replicas: Vec<(i64, String)>,
}

impl FsckBlock {
    /// Returns the address of the DataNode that holds the internal block with this ID.
    pub fn holder(&self, number: i64) -> Option<&str> {
        let replica = self.replicas.iter().find(|(found, _)| *found == number);
        replica.map(|(_, address)| address.as_str())
    }
}

impl Console {
    /// Lists the files below a path with their blocks, from the output of `hdfs fsck PATH -files -blocks
    /// -locations`.
    ///
    /// # Panics
    /// If the console has ended.
    pub fn fsck(&mut self, path: &str) -> Vec<FsckFile> {
        parse(&self.ask(&["fsck", path, "-files", "-blocks", "-locations"]).text)
    }

    /// Whether all blocks of files below a path are healthy: fsck finds none that is missing, corrupt, badly
    /// placed or short of redundancy.
    ///
    /// # Panics
    /// If the console has ended.
    pub fn is_healthy(&mut self, path: &str) -> bool {
        let said = self.ask(&["fsck", path]).text;
        let none = |what: &str| {
            let counts: Vec<_> = said.lines().filter(|line| line.trim().starts_with(what)).collect();
            !counts.is_empty()
                && counts.iter().all(|line| {
                    line.split([':', '(']).nth(1).is_some_and(|count| count.trim().starts_with('0'))
                })
        };
        said.contains("is HEALTHY")
            && none("Under-erasure-coded block groups:")
            && none("Unsatisfactory placement block groups:")
            && none("Missing block groups:")
            && none("Corrupt block groups:")
            && none("Missing internal blocks:")
    }

    /// For all files below a path, counts the blocks, or internal blocks of groups, for which the NameNode lists
    /// no DataNode. The query is cheap.
    ///
    /// # Panics
    /// If the NameNode does not answer.
    pub fn lacking(&mut self, path: &str) -> usize {
        self.run(&["lacking", path]).trim().parse().expect("a number")
    }
}

/// Parses the output of fsck; unknown lines are skipped.
fn parse(text: &str) -> Vec<FsckFile> {
    let mut files: Vec<FsckFile> = Vec::new();
    for line in text.lines() {
        if let Some(file) = file(line) {
            files.push(file);
        } else if let (Some(file), Some(block)) = (files.last_mut(), block(line)) {
            file.blocks.push(block);
        }
    }
    files
}

fn file(line: &str) -> Option<FsckFile> {
    let (path, rest) = line.split_once(' ').filter(|(path, _)| path.starts_with('/'))?;
    let (bytes, rest) = rest.split_once(" bytes, ")?;
    bytes.parse::<u64>().ok()?;
    let policy = rest.split_once("policy=").and_then(|(_, policy)| policy.split(',').next());
    Some(FsckFile { path: path.to_owned(), policy: policy.map(str::to_owned), blocks: Vec::new() })
}

fn block(line: &str) -> Option<FsckBlock> {
    let (_, rest) = line.split_once(". ")?;
    let (pool, rest) = rest.split_once(":blk_").filter(|(pool, _)| pool.starts_with("BP-"))?;
    let (name, rest) = rest.split_once(" len=")?;
    let (number, stamp) = name.split_once('_')?;
    let bytes = rest.split(' ').next()?.parse().ok()?;
    let (number, stamp) = (number.parse().ok()?, stamp.parse().ok()?);
    let replicas = rest.split("DatanodeInfoWithStorage[").collect::<Vec<_>>();
    let replicas = replicas.windows(2).filter_map(|pair| {
        // For a block that is not striped, fsck lists replicas without an ID, because they share the block's
        // ID.
        let before = pair[0].trim_end_matches(':').rsplit_once("blk_");
        let replica = before.map_or(Some(number), |(_, replica)| replica.parse().ok())?;
        Some((replica, pair[1].split(',').next()?.to_owned()))
    });
    Some(FsckBlock { pool: pool.to_owned(), number, stamp, bytes, replicas: replicas.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_striped_and_a_replicated_file_are_read() {
        let text = "\
/a/f 1500 bytes, erasure-coded: policy=RS-6-3-1024k, 1 block(s):  OK
0. BP-1-127.0.0.1-2:blk_-9223372036854775792_1001 len=1500 Live_repl=2  [blk_-9223372036854775792:DatanodeInfoWithStorage[10.80.1.3:9866,DS-a,DISK], blk_-9223372036854775786:DatanodeInfoWithStorage[10.80.1.4:9866,DS-b,DISK]]

/b 7 bytes, replicated: replication=1, 1 block(s):  OK
0. BP-1-127.0.0.1-2:blk_1073741825_1002 len=7 Live_repl=1  [DatanodeInfoWithStorage[10.80.1.5:9866,DS-c,DISK]]

Status: HEALTHY
";
        let files = parse(text);
        assert_eq!(files.len(), 2);
        assert_eq!((&files[0].path[..], files[0].policy.as_deref()), ("/a/f", Some("RS-6-3-1024k")));
        let group = &files[0].blocks[0];
        assert_eq!((group.number, group.stamp, group.bytes), (-9_223_372_036_854_775_792, 1001, 1500));
        let holders: Vec<_> = group.replicas.iter().map(|(number, node)| (number & 15, &node[..])).collect();
        assert_eq!(holders, [(0, "10.80.1.3:9866"), (6, "10.80.1.4:9866")]);
        assert_eq!(files[1].policy, None);
        assert_eq!(files[1].blocks[0].replicas, [(1_073_741_825, "10.80.1.5:9866".to_owned())]);
    }
}
