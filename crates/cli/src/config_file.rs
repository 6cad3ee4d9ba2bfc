//! baton.toml: the options of `baton serve` under the same names.

use std::path::Path;
use std::{fs, io};

use clap::{Args, Command};
use toml::{Table, Value};

use crate::failure::Failure;
use crate::near_match::near_matches;
use crate::options::ServeOptions;

const DEFAULT_FILE: &str = "baton.toml";
/// Keys that mean the same.
const EITHER: [(&str, &str); 3] = [("kv-pages", "kv-memory"), ("host", "router-host"), ("port", "router-port")];

/// Reads the named file, or ./baton.toml where there is one.
pub(crate) fn read(named: Option<&Path>) -> Result<ServeOptions, Failure> {
    let path = named.unwrap_or(Path::new(DEFAULT_FILE));
    match fs::read_to_string(path) {
        Ok(text) => parse(&text).map_err(|failure| failure.within(path)),
        Err(error) if named.is_none() && error.kind() == io::ErrorKind::NotFound => Ok(ServeOptions::default()),
        Err(error) => Err(Failure::user(format!("{}: {error}", path.display()))),
    }
}

fn parse(text: &str) -> Result<ServeOptions, Failure> {
    // The parser's message spans several lines and points at the mistake, so it is shown as it is.
    let table: Table = text.parse().map_err(|error| Failure::user(format!("not valid TOML\n{error}")))?;
    let known = known_keys();
    if let Some(unknown) = table.keys().find(|key| !known.contains(key)) {
        let failure = Failure::user(format!("unknown key {unknown:?}"));
        return Err(match near_matches(unknown, known.iter().map(String::as_str)).as_slice() {
            [] => failure.hint(format!("keys are {}", known.join(", "))),
            near => failure.hint(format!("did you mean {}?", near.join(" or "))),
        });
    }
    for (one, other) in EITHER {
        if table.contains_key(one) && table.contains_key(other) {
            return Err(Failure::user(format!("{one} and {other} cannot both be set")));
        }
    }
    // One key at a time, so that a wrong value is reported with its key.
    table.into_iter().try_fold(ServeOptions::default(), |options, (key, value)| {
        let one = Table::from_iter([(key.clone(), value)]);
        match Value::Table(one).try_into::<ServeOptions>() {
            Ok(read) => Ok(options.or(read)),
            Err(error) => Err(Failure::user(format!("{key}: {}", error.message()))),
        }
    })
}

/// The options of `baton serve`, except the name of this file.
fn known_keys() -> Vec<String> {
    let command = ServeOptions::augment_args(Command::new("serve"));
    let names = command.get_arguments().flat_map(|argument| {
        let aliases = argument.get_visible_aliases().unwrap_or_default().into_iter().map(str::to_owned);
        std::iter::once(argument.get_id().as_str().replace('_', "-")).chain(aliases)
    });
    names.filter(|name| name != "config").collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::byte_size::ByteSize;
    use crate::fleet_options::ModelLib;
    use crate::strategy::{RouterMode, StrategyParameters};

    #[test]
    fn keys_are_the_options_names() {
        let text = "
            model = 'm'
            router-host = '0.0.0.0'
            router-port = 9000
            router-mode = 'round-robin'
            decode = 2
            model-lib = 'cpu'
            endpoint-hosts = ['a', '::1']
            endpoint-ports = [1, 2]
            enable-prefix-cache = false
            kv-memory = '2G'
            pd-balance-factor = 0.5
            load-slack = 3
        ";
        let options = parse(text).unwrap();
        assert_eq!(options.model.as_deref(), Some("m"));
        assert_eq!(options.router.router_host, Some("0.0.0.0".parse().unwrap()));
        assert_eq!((options.router.router_port, options.fleet.decode), (Some(9000), Some(2)));
        assert_eq!(options.router.router_mode, Some(RouterMode::ROUND_ROBIN));
        assert_eq!(options.fleet.endpoint_hosts, Some(vec!["a".parse().unwrap(), "::1".parse().unwrap()]));
        assert_eq!(options.fleet.endpoint_ports, Some(vec![1, 2]));
        assert_eq!(options.fleet.model_lib, Some(ModelLib::Cpu));
        assert_eq!(options.engine.enable_prefix_cache, Some(false));
        assert_eq!(options.engine.kv_memory, Some(ByteSize(2 << 30)));
        let parameters = [("pd_balance_factor", 0.5), ("load_slack", 3.0)];
        assert_eq!(options.router.parameters, StrategyParameters::from(parameters));
    }

    #[test]
    fn short_names_are_keys_too() {
        let options = parse("host = '0.0.0.0'\nport = 9000").unwrap();
        assert_eq!(options.router.router_host, Some("0.0.0.0".parse().unwrap()));
        assert_eq!(options.router.router_port, Some(9000));
    }

    #[test]
    fn mistakes_name_the_key() {
        let cases = [
            ("rooter-port = 1", "error: unknown key \"rooter-port\"\nhint: did you mean router-port?"),
            ("router-port = 'x'", "error: router-port: invalid type: string \"x\", expected u16"),
            ("router-port = 70000", "error: router-port: invalid value: integer `70000`, expected u16"),
            ("kv-memory = 'much'", "error: kv-memory: \"much\" is not an amount of memory; write it like 512M or 4G"),
            ("dtype = 'int3'", "error: dtype: unknown variant `int3`, expected one of `auto`, `bf16`, `f32`"),
            (
                "endpoint-hosts = ['a:1']",
                "error: endpoint-hosts: \"a:1\" is not a host; write a name or an address, without scheme and port",
            ),
            ("model-lib = 'tpu'", "error: model-lib: unknown variant `tpu`, expected one of `auto`, `cpu`, `mock`"),
            (
                "router-mode = 'disag'",
                "error: router-mode: unknown strategy \"disag\": there are auto, round-robin, least-loaded, prefix-aware, \
                 session-affinity, context-migration and disagg; \
                 did you mean disagg?",
            ),
            ("load-slack = 'x'", "error: load-slack: expected a number, not a string"),
            ("kv-pages = 1\nkv-memory = '1G'", "error: kv-pages and kv-memory cannot both be set"),
            ("port = 1\nrouter-port = 1", "error: port and router-port cannot both be set"),
        ];
        for (text, message) in cases {
            assert_eq!(parse(text).unwrap_err().to_string(), message);
        }
        let colour = parse("colour = 1").unwrap_err().to_string();
        assert!(colour.contains("hint: keys are ") && colour.contains("kv-pages"), "{colour}");
        assert!(parse("decode = ").unwrap_err().to_string().starts_with("error: not valid TOML"));
    }

    #[test]
    fn the_command_line_wins() {
        let file = parse("router-port = 1\ndecode = 3\nkv-pages = 5").unwrap();
        let mut typed = ServeOptions::default();
        typed.router.router_port = Some(2);
        typed.engine.kv_memory = Some(ByteSize(1 << 30));
        let both = typed.or(file);
        assert_eq!((both.router.router_port, both.fleet.decode), (Some(2), Some(3)));
        assert_eq!((both.engine.kv_pages, both.engine.kv_memory), (None, Some(ByteSize(1 << 30))));
    }
}
