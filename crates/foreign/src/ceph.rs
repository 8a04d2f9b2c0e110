//! Runs Ceph's plug-ins through `ceph-erasure-code-tool`.
//!
//! Ceph cuts an object into stripes of k chunks; a shard is the concatenation of its chunks from all stripes.
//! Shards are numbered by position. The plug-in lrc does not place all data before parity, so its shard
//! numbers differ from Mend's block numbers (`Case::shards`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cases::{Case, Encoded, Encoder};

/// The number of stripes in the object: more than one, so that a shard consists of several chunks.
const STRIPES: usize = 3;

/// The tool's installation folder and its working folder.
pub struct Ceph {
    root: PathBuf,
    work: PathBuf,
}

impl Ceph {
    pub fn new(folder: &Path) -> Self {
        Self { root: folder.join("root"), work: folder.join("ceph-work") }
    }

    fn run(&self, arguments: &[&str]) -> Result<String, String> {
        let libraries = self.root.join("usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH));
        let paths = [libraries.clone(), libraries.join("ceph"), self.root.join("lib"), {
            self.root.join("lib").join(format!("{}-linux-gnu", std::env::consts::ARCH))
        }];
        let paths = std::env::join_paths(paths).map_err(|error| error.to_string())?;
        let output = Command::new(self.root.join("usr/bin/ceph-erasure-code-tool"))
            .args(arguments)
            .current_dir(&self.work)
            .env("LD_LIBRARY_PATH", paths)
            .env("CEPH_LIB", libraries.join("ceph/erasure-code"))
            .env("CEPH_CONF", "/dev/null")
            .output()
            .map_err(|error| format!("ceph-erasure-code-tool does not start: {error}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(said.lines().find(|line| line.contains("invalid")).unwrap_or(&said).to_owned()),
        }
    }

    fn chunk_bytes(&self, profile: &str) -> Result<usize, String> {
        let printed = self.run(&["calc-chunk-size", profile, "1"])?;
        let number = printed.lines().find_map(|line| line.trim().parse().ok());
        number.ok_or_else(|| format!("no chunk size in {printed:?}"))
    }
}

impl Encoder for Ceph {
    fn encode(&mut self, case: &Case, random: &mut fastrand::Rng) -> Result<Encoded, String> {
        let text = |error: std::io::Error| error.to_string();
        fs::create_dir_all(&self.work).map_err(text)?;
        let chunk_bytes = self.chunk_bytes(&case.profile)?;
        let object: Vec<u8> = (0..case.k * chunk_bytes * STRIPES).map(|_| random.u8(..)).collect();
        fs::write(self.work.join("object"), &object).map_err(text)?;
        let shards: Vec<String> = case.shards.iter().map(usize::to_string).collect();
        let unit = chunk_bytes.to_string();
        self.run(&["encode", &case.profile, &unit, &shards.join(","), "object"])?;
        let read = |shard: &String| fs::read(self.work.join(format!("object.{shard}"))).map_err(text);
        let blocks: Vec<Vec<u8>> = shards.iter().map(read).collect::<Result<_, _>>()?;
        let expected = |block: usize| -> Vec<u8> {
            let chunks = object.chunks(chunk_bytes).skip(block).step_by(case.k);
            chunks.flatten().copied().collect()
        };
        match (0..case.k).find(|&block| blocks[block] != expected(block)) {
            Some(block) => Err(format!("shard {} is not data block {block}", case.shards[block])),
            None => Ok(Encoded { blocks, chunk_bytes }),
        }
    }
}

impl Drop for Ceph {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.work);
    }
}
