//! Stripes of random bytes whose blocks the lab deletes and repairs.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use codes::CodeSpec;

use super::{Run, unexpected};
use crate::error::LabError;
use crate::instruction::{Answer, BlockAt, Expected, Instruction};
use crate::scenario::{Loss, Losses};

/// The time limit for the coordinator to notice a killed helper.
const NOTICE_LIMIT: Duration = Duration::from_secs(30);

/// A stripe whose blocks are deleted and repaired.
pub(super) struct Stored {
    pub(super) name: String,
    pub(super) code: CodeSpec,
    pub(super) data_blocks: usize,
    pub(super) stripe: String,
    pub(super) block_bytes: u64,
    pub(super) sub_blocks: u16,
    pub(super) blocks: Vec<BlockAt>,
    source: PathBuf,
}

impl Stored {
    /// The sets of blocks to lose.
    pub(super) fn losses(&self, losses: &Losses) -> Vec<Vec<u16>> {
        let Some(helper) = &losses.lost_on else { return losses.losses.clone() };
        let blocks = self.blocks.iter().zip(0..).filter(|(at, _)| at.node == *helper);
        vec![blocks.map(|(_, index)| index).collect()]
    }

    /// The blocks that are not lost, by index.
    pub(super) fn survivors(&self, lost: &[u16]) -> impl DoubleEndedIterator<Item = &BlockAt> {
        let indices = 0..self.blocks.len() as u16;
        self.blocks.iter().zip(indices).filter(move |(_, index)| !lost.contains(index)).map(|(at, _)| at)
    }
}

impl Run<'_> {
    /// Stores a stripe of random bytes through the coordinator's namespace.
    pub(super) fn store(&mut self, code: &CodeSpec, block_bytes: u64) -> Result<Stored, LabError> {
        let built = code.build().map_err(|error| LabError::Cluster(error.to_string()))?;
        let data_blocks = built.data_blocks();
        let name = format!("{code}-{block_bytes}");
        let source = self.fleets[self.current].fleet.work().join(format!("{name}.source"));
        write_noise(&source, data_blocks as u64 * block_bytes, block_bytes)
            .map_err(LabError::file("write", &source))?;
        let put = Instruction::Put {
            path: source.clone(),
            name: name.clone(),
            code: code.to_string(),
            block_bytes,
        };
        self.fleets[self.current].fleet.ask_loader(&self.network, &put)?;
        let layout = Instruction::Layout { name: name.clone() };
        match self.fleets[self.current].fleet.ask_loader(&self.network, &layout)? {
            Answer::Layout { stripe, block_bytes, sub_blocks, blocks, .. } => Ok(Stored {
                name,
                code: code.clone(),
                data_blocks,
                stripe,
                block_bytes,
                sub_blocks,
                blocks,
                source,
            }),
            other => Err(unexpected(&other)),
        }
    }

    pub(super) fn forget(&mut self, stored: &Stored) -> Result<(), LabError> {
        self.fleets[self.current]
            .fleet
            .ask_loader(&self.network, &Instruction::Remove { name: stored.name.clone() })?;
        fs::remove_file(&stored.source).map_err(LabError::file("remove", &stored.source))
    }

    /// Returns the file and offset of a block's original bytes. Data blocks are part of the source file.
    /// Other blocks are read and saved while they are healthy; reading verifies them against the catalog's
    /// digest.
    pub(super) fn expected(&mut self, stored: &Stored, block: u16) -> Result<Expected, LabError> {
        if usize::from(block) < stored.data_blocks && stored.sub_blocks == 1 {
            let offset = u64::from(block) * stored.block_bytes;
            return Ok(Expected { block, path: stored.source.clone(), offset });
        }
        let path = self.fleets[self.current].fleet.work().join(format!("{}.{block}", stored.name));
        if !path.exists() {
            let save = Instruction::Save {
                stripe: stored.stripe.clone(),
                block,
                window: 0..stored.block_bytes / u64::from(stored.sub_blocks),
                block_bytes: stored.block_bytes,
                path: path.clone(),
            };
            self.fleets[self.current].fleet.ask_loader(&self.network, &save)?;
        }
        Ok(Expected { block, path, offset: 0 })
    }

    pub(super) fn kill_holders(&mut self, stored: &Stored, lost: &[u16]) -> Result<Vec<String>, LabError> {
        if self.scenario.loss.how == Loss::Pretend {
            return Ok(Vec::new());
        }
        let holders: Vec<_> =
            lost.iter().map(|&block| stored.blocks[usize::from(block)].node.clone()).collect();
        for holder in &holders {
            self.fleets[self.current].fleet.kill(holder)?;
        }
        let give_up = Instant::now() + NOTICE_LIMIT;
        loop {
            match self.fleets[self.current].fleet.ask_loader(&self.network, &Instruction::Nodes)? {
                Answer::Nodes { up } if !holders.iter().any(|holder| up.contains(holder)) => {
                    return Ok(holders);
                }
                _ if Instant::now() > give_up => {
                    let reason = format!("{} is still listed as up", holders.join(", "));
                    return Err(LabError::Agent { who: "coordinator".to_owned(), reason });
                }
                _ => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// Returns the current location of a block.
    pub(super) fn holder(&mut self, stored: &Stored, block: u16) -> Result<BlockAt, LabError> {
        let layout = Instruction::Layout { name: stored.name.clone() };
        match self.fleets[self.current].fleet.ask_loader(&self.network, &layout)? {
            Answer::Layout { blocks, .. } => Ok(blocks[usize::from(block)].clone()),
            other => Err(unexpected(&other)),
        }
    }
}

/// Writes pseudo-random bytes that depend on `seed`. The bytes do not repeat, so misplaced blocks are
/// detected.
pub(crate) fn write_noise(path: &Path, bytes: u64, seed: u64) -> std::io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut state = seed | 1;
    let mut left = bytes;
    while left > 0 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let word = state.to_le_bytes();
        let part = left.min(word.len() as u64);
        file.write_all(&word[..part as usize])?;
        left -= part;
    }
    file.flush()
}

/// Removes a block's files `NAME` and `NAME.crc` wherever they are below the folder.
pub(super) fn remove_named(folder: &Path, name: &str) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_named(&path, name)?;
        } else if let Some(file) = path.file_name().and_then(|file| file.to_str())
            && matches!(file.strip_prefix(name), Some("" | ".crc"))
        {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_of_a_helper_is_lost_wherever_it_was_placed() {
        let at = |node: &str| BlockAt { block: node.to_owned(), node: node.to_owned() };
        let stored = Stored {
            name: "s".to_owned(),
            code: "rs-3-2".parse().unwrap(),
            data_blocks: 2,
            stripe: "0".to_owned(),
            block_bytes: 1,
            sub_blocks: 1,
            blocks: ["h3", "h2", "h1"].map(at).into(),
            source: PathBuf::new(),
        };
        let losses = |lost_on: Option<&str>| Losses {
            losses: vec![vec![0]],
            lost_on: lost_on.map(str::to_owned),
            how: Loss::Pretend,
        };
        assert_eq!(stored.losses(&losses(None)), [[0]]);
        assert_eq!(stored.losses(&losses(Some("h1"))), [[2]]);
    }
}
