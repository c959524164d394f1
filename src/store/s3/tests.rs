use super::*;

fn at(text: &str) -> S3Location {
    match Location::parse(text) {
        Ok(Location::S3(at)) => at,
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_the_clouds_that_restic_knows_get_the_bucket_into_the_host() {
    for (text, virtual_host) in [
        ("s3:s3.amazonaws.com/bucket", true),
        ("s3:s3.eu-central-1.amazonaws.com/bucket", true),
        ("s3:s3.cn-north-1.amazonaws.com.cn/bucket", true),
        ("s3:s3.amazonaws.com/buc.ket", false),
        ("s3:http://s3.amazonaws.com/buc.ket", true),
        ("s3:storage.googleapis.com/bucket", true),
        ("s3:oss-eu-central-1.aliyuncs.com/bucket", true),
        ("s3:s3.example.com:9000/bucket", false),
        ("s3:s3.amazonaws.com.example.com/bucket", false),
    ] {
        assert_eq!(is_virtual_host(&at(text)), virtual_host, "{text}");
    }
}

#[test]
fn the_region_is_read_from_amazon_hosts_only() {
    for (host, region) in [
        ("s3.eu-central-1.amazonaws.com", Some("eu-central-1")),
        ("s3-us-west-2.amazonaws.com", Some("us-west-2")),
        ("s3.dualstack.eu-west-1.amazonaws.com:443", Some("eu-west-1")),
        ("s3-fips.us-gov-west-1.amazonaws.com", Some("us-gov-west-1")),
        ("s3.cn-north-1.amazonaws.com.cn", Some("cn-north-1")),
        ("s3.amazonaws.com", None),
        ("s3-external-1.amazonaws.com", None),
        ("s3.eu-central-1.example.com", None),
    ] {
        assert_eq!(region_of_host(host), region, "{host}");
    }
}

#[test]
fn requests_go_to_the_address_that_restic_would_use() {
    let plan = |text: &str, region: Option<&str>| {
        let (at, region) = (at(text), region.map(str::to_owned));
        let virtual_host = is_virtual_host(&at);
        Plan { at, keys: Source::Keys(Keys::Anonymous), role: None, region, virtual_host }
    };
    for (text, region, endpoint) in [
        ("s3:s3.amazonaws.com/bucket", REGION, "https://bucket.s3.amazonaws.com"),
        ("s3:s3.amazonaws.com/buc.ket", "eu-west-1", "https://s3.eu-west-1.amazonaws.com"),
        ("s3:http://127.0.0.1:9000/bucket", "eu-west-1", "http://127.0.0.1:9000"),
    ] {
        assert_eq!(plan(text, None).endpoint(region), endpoint);
    }
}
