//! Input from people and certificates: configuration, ranges, addresses, sizes, codes, roles.

use std::fmt::{Debug, Display};
use std::path::Path;
use std::str::FromStr;

use client::{ByteRange, StripeSpan, pieces_of};
use cluster::{Address, Bandwidth, ByteSize, ClusterId, Config, Host, Name, Role, peer_role};
use codes::CodeSpec;
use repair::{Chunking, Scheme};
use rustls_pki_types::CertificateDer;

/// Codes beyond these limits are parsed but not built. Building them is slow and tests no more of the parser.
const MAX_BLOCKS: usize = 24;
const MAX_SUB_BLOCKS: usize = 64;

/// Parses `text`. Checks that the value, printed and parsed again, is the same.
fn round<T: FromStr + Display + PartialEq + Debug>(text: &str) -> Option<T> {
    let value: T = text.parse().ok()?;
    let shown = value.to_string();
    assert!(
        shown.parse().is_ok_and(|again: T| again == value),
        "{text:?} is {value:?}, which prints as {shown:?}"
    );
    Some(value)
}

pub(crate) fn config(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    match Config::parse(text, Path::new("mend.toml")) {
        Ok(config) => {
            let _ = (config.coordinator.dial_api(), config.coordinator.dial_control());
            for helper in &config.helpers {
                let _ = helper.dial_address();
                assert!(config.helper(&helper.name).is_some());
            }
            true
        }
        Err(error) => {
            let lines = text.lines().count().max(1);
            assert!(error.line <= lines + 1 && !error.to_string().is_empty(), "{error}");
            false
        }
    }
}

pub(crate) fn byte_range(bytes: &[u8]) -> bool {
    let Some(range) = std::str::from_utf8(bytes).ok().and_then(round::<ByteRange>) else { return false };
    for file_bytes in [0, 1, 100_000, u64::MAX] {
        let Ok(wanted) = range.within("film", file_bytes) else { continue };
        assert!(wanted.start <= wanted.end && wanted.end <= file_bytes);
        let chunking = Chunking::new(32_768, 8192, 4).expect("it divides");
        let stripe = StripeSpan { file_offset: 1000, data_bytes: 99_000, chunking };
        let clipped = stripe.clip(&wanted);
        let read: u64 = pieces_of(&stripe, &clipped).iter().map(client::Piece::bytes).sum();
        assert_eq!(read, clipped.end - clipped.start);
    }
    true
}

pub(crate) fn address(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let host = round::<Host>(text).is_some();
    let address = round::<Address>(text);
    if let Some(address) = &address {
        assert!(address.port() != 0 && !address.host().is_empty());
    }
    host || address.is_some()
}

pub(crate) fn quantity(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let (size, rate) = (round::<ByteSize>(text), round::<Bandwidth>(text));
    assert!(rate.is_none_or(|rate| rate.bits_per_second() > 0));
    size.is_some() || rate.is_some()
}

pub(crate) fn code_spec(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let scheme = round::<Scheme>(text).is_some();
    let Some(spec) = round::<CodeSpec>(text) else { return scheme };
    spec.check().expect("a spec that was parsed is within the code's limits");
    assert!(0 < spec.data_blocks() && spec.data_blocks() < spec.blocks() && spec.sub_blocks() > 0);
    if spec.blocks() <= MAX_BLOCKS && spec.sub_blocks() <= MAX_SUB_BLOCKS {
        let code = spec.build().expect("a spec that passes its check can be made");
        assert_eq!((code.blocks(), code.data_blocks()), (spec.blocks(), spec.data_blocks()));
        assert_eq!(code.sub_blocks(), spec.sub_blocks());
    }
    true
}

pub(crate) fn role_name(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let _ = (text.parse::<Name>(), text.parse::<ClusterId>());
    let Some(role) = Role::from_dns_name(text) else { return false };
    assert_eq!(role.dns_name(), text, "two names for one role");
    assert_eq!(role.server_name().to_str(), text);
    true
}

pub(crate) fn certificate(bytes: &[u8]) -> bool {
    peer_role(&[CertificateDer::from(bytes)]).is_some()
}
