//! A driver process, which reads requests from its standard input and writes answers to its standard output
//! (`foreign/README.md`).

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::cases::{Case, Encoded, Encoder};

/// The block size in bytes: a multiple of the block alignment that every library requires.
const BLOCK_BYTES: usize = 1536;

/// A driver. It starts with the first request and ends when its input is closed.
pub struct Driver {
    command: Command,
    running: Option<DriverProcess>,
}

struct DriverProcess {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Driver {
    pub fn new(command: Command) -> Self {
        Self { command, running: None }
    }

    fn running(&mut self) -> std::io::Result<&mut DriverProcess> {
        if self.running.is_none() {
            let mut child = self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
            let input = child.stdin.take().expect("it is piped");
            let output = BufReader::new(child.stdout.take().expect("it is piped"));
            self.running = Some(DriverProcess { child, input, output });
        }
        Ok(self.running.as_mut().expect("just started"))
    }

    fn ask(&mut self, case: &Case, data: &[Vec<u8>]) -> std::io::Result<Result<Vec<Vec<u8>>, String>> {
        let running = self.running()?;
        writeln!(running.input, "{} {} {} {BLOCK_BYTES}", case.encoder, case.k, case.m)?;
        data.iter().try_for_each(|block| running.input.write_all(block))?;
        running.input.flush()?;
        let mut line = String::new();
        running.output.read_line(&mut line)?;
        if let Some(refused) = line.strip_prefix("error ") {
            return Ok(Err(refused.trim().into()));
        }
        if line != "ok\n" {
            return Err(std::io::Error::other(format!("an answer that makes no sense: {line:?}")));
        }
        let mut parity = vec![vec![0; BLOCK_BYTES]; case.m];
        parity.iter_mut().try_for_each(|block| running.output.read_exact(block))?;
        Ok(Ok(parity))
    }
}

impl Encoder for Driver {
    fn encode(&mut self, case: &Case, random: &mut fastrand::Rng) -> Result<Encoded, String> {
        let data: Vec<Vec<u8>> =
            (0..case.k).map(|_| (0..BLOCK_BYTES).map(|_| random.u8(..)).collect()).collect();
        let parity = self.ask(case, &data).unwrap_or_else(|error| {
            // A driver that dies is a fault of the test, not a refusal by the encoder.
            panic!("{:?} does not answer: {error}", self.command);
        })?;
        Ok(Encoded { blocks: [data, parity].concat(), chunk_bytes: BLOCK_BYTES })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(DriverProcess { mut child, input, output }) = self.running.take() {
            drop((input, output));
            // The driver ends, since its input is closed.
            let _ = child.wait();
        }
    }
}
