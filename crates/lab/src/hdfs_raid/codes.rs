//! The codes in the papers' figures about HDFS-RAID, and the files whose blocks are read.

use std::fmt;
use std::str::FromStr;

/// A Reed-Solomon code of HDFS-RAID, whose text form is `N-K`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RaidCode {
    /// The number of blocks in a stripe.
    pub(super) n: usize,
    /// The number of data blocks in a stripe.
    pub(super) k: usize,
    pub(super) paper: Paper,
}

/// The paper that measures a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Paper {
    /// Repair pipelining (TOS 2021), figure 10a.
    Tos,
    /// CRR, figure 3. The paper's RS(k, m) has n = k + m.
    Crr,
}

const fn code(n: usize, k: usize, paper: Paper) -> RaidCode {
    RaidCode { n, k, paper }
}

/// All codes. TOS 2021 states only the range of figure 10a's savings, which is that of k = 6 to 12; these are the
/// codes of its figure 8c.
pub(super) const CODES: [RaidCode; 9] = [
    code(9, 6, Paper::Tos),
    code(12, 8, Paper::Tos),
    code(14, 10, Paper::Tos),
    code(16, 12, Paper::Tos),
    code(6, 4, Paper::Crr),
    code(8, 6, Paper::Crr),
    code(10, 8, Paper::Crr),
    code(12, 10, Paper::Crr),
    code(14, 12, Paper::Crr),
];
/// The code of CRR's figure 4, in which the block size varies.
pub(super) const OF_SIZES: RaidCode = code(8, 6, Paper::Crr);
/// HDFS-RAID's own code, with which files are encoded and DataNodes recovered.
pub(super) const OWN: RaidCode = code(14, 10, Paper::Tos);
/// The name of HDFS-RAID's own codec, and its parity root.
const OWN_CODEC: [&str; 2] = ["rs", "/raidrs"];

/// A code and a block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) code: RaidCode,
    /// The block size in MiB.
    pub(super) block_mib: usize,
}

/// Returns the points at which reads are measured: each code with one block size, and the other sizes of CRR's figure 4.
pub(super) fn points(codes: &[RaidCode], block_mib: usize, sizes_mib: &[usize]) -> Vec<Point> {
    let sizes = sizes_mib.iter().filter(|_| codes.contains(&OF_SIZES));
    let sizes = sizes.map(|&block_mib| Point { code: OF_SIZES, block_mib });
    let mut points: Vec<Point> = codes.iter().map(|&code| Point { code, block_mib }).collect();
    points.extend(sizes.filter(|point| point.block_mib != block_mib));
    points
}

impl RaidCode {
    /// Returns the size of the paper's slices: 32 KiB in TOS 2021, 1 MB in CRR.
    pub(super) fn slice_bytes(self) -> usize {
        match self.paper {
            Paper::Tos => 32 << 10,
            Paper::Crr => 1 << 20,
        }
    }

    /// Returns Mend's name of the code.
    pub(super) fn spec(self) -> String {
        format!("rs-{self}-hdfs-raid")
    }

    /// Returns the folder of the code's parity files.
    pub(super) fn parity_root(self) -> String {
        if self == OWN { OWN_CODEC[1].to_owned() } else { format!("/parity-{self}") }
    }

    /// Returns policies that have `mend raid encode` encode a file with this code.
    pub(super) fn policies(self, path: &str) -> String {
        let (codec, name) = (self.codec_table("codec"), self.codec());
        format!(
            "{codec}[[policy]]\nname = \"lab\"\npaths = [\"{path}\"]\ncodec = \"{name}\"\nmin_age = \"0s\"\n"
        )
    }

    /// Returns the name of the code's codec.
    fn codec(self) -> String {
        if self == OWN { OWN_CODEC[0].to_owned() } else { format!("lab-{self}") }
    }

    /// Returns the codec as a table of this name; nothing for HDFS-RAID's own.
    pub(super) fn codec_table(self, table: &str) -> String {
        if self == OWN {
            return String::new();
        }
        let (name, spec, root) = (self.codec(), self.spec(), self.parity_root());
        format!("[[{table}]]\nname = \"{name}\"\ncode = \"{spec}\"\nparity_root = \"{root}\"\n\n")
    }
}

impl fmt::Display for RaidCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.n, self.k)
    }
}

impl FromStr for RaidCode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = CODES.into_iter().find(|code| code.to_string() == text);
        found.ok_or_else(|| {
            format!(
                "there is no code {text}; the codes are {}",
                CODES.map(|code| code.to_string()).join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use codes::CodeSpec;

    use super::*;

    #[test]
    fn mend_has_the_codes() {
        for code in CODES {
            let built = code.spec().parse::<CodeSpec>().unwrap().build().unwrap();
            assert_eq!((built.blocks(), built.data_blocks()), (code.n, code.k), "{code}");
            assert_eq!(code.to_string().parse(), Ok(code));
        }
        assert!(CODES.contains(&OF_SIZES) && CODES.contains(&OWN));
        assert!("9-7".parse::<RaidCode>().unwrap_err().contains("14-10"));
    }

    #[test]
    fn block_sizes_vary_for_one_code() {
        let sizes = |codes: &[RaidCode]| -> Vec<(String, usize)> {
            let points = points(codes, 64, &[32, 64, 128]);
            points.into_iter().map(|point| (point.code.to_string(), point.block_mib)).collect()
        };
        let point = |code: &str, size| (code.to_owned(), size);
        assert_eq!(sizes(&[OWN]), [point("14-10", 64)]);
        assert_eq!(
            sizes(&[OWN, OF_SIZES]),
            [("14-10", 64), ("8-6", 64), ("8-6", 32), ("8-6", 128)].map(|(code, size)| point(code, size))
        );
    }

    #[test]
    fn only_codes_of_our_own_need_a_codec() {
        assert!(!OWN.policies("/f").contains("[[codec]]"));
        let other = OF_SIZES.policies("/f");
        assert!(other.contains("code = \"rs-8-6-hdfs-raid\"\nparity_root = \"/parity-8-6\""), "{other}");
        assert!(other.contains("codec = \"lab-8-6\""), "{other}");
    }
}
