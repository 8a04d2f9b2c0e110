//! The parity of every code never changes: later versions must decode existing stripes.

mod stripe;

use codes::{CodeSpec, Recipe};

/// Returns the FNV-1a hash of the dense rows of the encoding.
fn fingerprint(encoding: &Recipe, columns: usize) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for output in 0..encoding.outputs().len() {
        let mut dense = vec![0u8; columns];
        encoding.row(output).iter().for_each(|&(source, coefficient)| dense[source as usize] = coefficient);
        for byte in dense {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    hash
}

/// Fingerprints of codes that match Ceph's plug-ins byte for byte (`make test-foreign`).
const CEPH_FINGERPRINTS: &[(&str, u64)] = &[
    ("ceph-shec-4-3-2", 0x31ff94f440bbfcd4),
    ("ceph-shec-10-5-3", 0xba67b97fa65cdec8),
    ("clay-6-4-5-ceph-jerasure", 0xb2bad147102e9005),
    ("clay-6-4-5-ceph-isa", 0x87420b175808d4a1),
    ("clay-6-4-5-ceph-cauchy", 0xe65ed2d8e6fe5eb9),
    ("clay-8-5-7-ceph-jerasure", 0xf56c8ecbebead498),
];

/// Fingerprints that an independent implementation of each construction computed.
const FINGERPRINTS: &[(&str, u64)] = &[
    ("rs-14-10", 0xb0dd5d28ddb6620d),
    ("rs-14-10-vandermonde", 0x1482079770238fcd),
    ("rs-14-10-jerasure", 0xd999a5b3f72f8878),
    ("rs-14-10-hdfs-raid", 0x076d8e099b5cf577),
    ("rs-9-6", 0x42114760ab9621bd),
    ("rs-9-6-vandermonde", 0x0e88437e14a07cda),
    ("rs-9-6-jerasure", 0x88b059760dd3e38a),
    ("rs-9-6-hdfs-raid", 0xabfbc868c27442ef),
    ("rs-255-200", 0x5c16a381670b97a5),
    ("rs-255-200-vandermonde", 0x181e3ca72b7206a2),
    ("rs-255-200-jerasure", 0xd6d658a7c5a5ce73),
    ("rs-255-200-hdfs-raid", 0xd717833e23c7dead),
    ("rs-9-6-qfs", 0x0dc77e25362d18f4),
    ("rs-67-64-qfs", 0x777803b7e8283cd7),
    ("lrc-12-2-2", 0x934a382eccac75cf),
    ("lrc1-12-2-2", 0x78086617f1ba4d19),
    ("lrc-6-2-2", 0x08885bc5ab918cd7),
    ("lrc1-6-2-2", 0x9e9396f931bd802f),
    ("lrc-10-2-3", 0x9645c353caa013b8),
    ("lrc1-10-2-3", 0x27c27691bfd94be7),
    ("lrc-12-3-2", 0xc7b471cc656a8678),
    ("lrc1-12-3-2", 0x2bd870f76dc587bd),
    ("lrc-12-2-2-powers", 0xff5b90478b6dd3f5),
    ("lrc-10-2-3-powers", 0x28f19d0cd7370063),
    ("lrc-12-2-2-cauchy", 0xa9226c7c1d2708c3),
    ("lrc-10-2-3-cauchy", 0x58279b8bc9d2ba02),
    ("rotated-16-12-4", 0xb53e3eafd07ca269),
    ("rotated-9-6-2", 0x10c827675635b917),
    ("rotated-14-10-8", 0x6b68e06416cb0bb5),
    ("rotated-12-6-2", 0xf209088c0d4f5325),
    ("hitchhiker-xor-14-10", 0x2eefd2ebe1d89ab1),
    ("hitchhiker-xorplus-14-10", 0x9d76e54e7f3457eb),
    ("hitchhiker-nonxor-14-10", 0x17d2b9a41fa91a6d),
    ("hitchhiker-xor-9-6", 0xa7ddb683f36e82fd),
    ("hitchhiker-xorplus-9-6", 0x3f151d6d99f791e2),
    ("hitchhiker-nonxor-9-6", 0x94d75c120def9a0f),
    ("hitchhiker-xor-16-12", 0xf278e361c0b4c9d1),
    ("hitchhiker-xorplus-16-12", 0xcf074de8fbdfbfd5),
    ("hitchhiker-nonxor-16-12", 0x533cb86cb72f74e8),
    ("hitchhiker-xor-6-4", 0x3061bb9137099eb1),
    ("hitchhiker-xorplus-6-4", 0x0e0d664cc9b07e0d),
    ("hitchhiker-nonxor-6-4", 0xae8056df2172be49),
    ("clay-4-2-3", 0x0ded4d7f46e941c3),
    ("clay-6-3-4", 0x7331f469f839e402),
    ("clay-8-4-6", 0x73c68eb11325a3aa),
    ("clay-9-6-8", 0xc03084b6bd3981ff),
    ("clay-7-4-5", 0xb569b55caed6e3d5),
    ("rs-14-10-isal", 0xc845af1d7c9c4e3d),
    ("rs-255-252-isal", 0xee8ac49e4122d890),
    ("rs-14-10-isal-inverse", 0xa6a39d7a6973ce7d),
    ("rs-14-10-zfec", 0x3afad1dd0c5b831b),
    ("xor-7-6", 0x70a8e5e967aa760b),
    ("par1-14-10", 0x57883a03e0029092),
    ("ceph-lrc-4-2-3", 0x865ac24eb1542755),
    ("ceph-lrc-8-4-3", 0x4da58d9ef5cda051),
    ("uniform-lrc-12-2-2", 0xe522cf4f57265a98),
    ("uniform-lrc-48-4-3", 0x51dca4ce430957de),
    ("less-6-4-2", 0x8c1d0a23e9676b99),
    ("less-14-10-2", 0x1fbc0b74b67eeac7),
    ("less-14-10-4", 0x63d22388b718bb01),
    ("hitchhiker-xor-12-8-hadoop", 0x605540f5da52710d),
];

#[test]
fn encodings_do_not_change() {
    for &(name, expected) in FINGERPRINTS.iter().chain(CEPH_FINGERPRINTS) {
        let spec: CodeSpec = name.parse().expect(name);
        let code = spec.build().expect("within limits");
        let columns = code.data_blocks() * code.sub_blocks();
        assert_eq!(code.encoding().sources().len(), columns, "{name}: every data sub-block is a source");
        let data: Vec<_> = (0..columns)
            .map(|index| stripe::sub_block(index / code.sub_blocks(), index % code.sub_blocks()))
            .collect();
        assert_eq!(code.encoding().sources(), data, "{name}: sources are in order");
        let actual = fingerprint(code.encoding(), columns);
        assert_eq!(actual, expected, "{name}: {actual:#018x}");
    }
}
