//! The environment of commands: an allow list, private folders, what the policy passes and sets.
//!
//! In: the runner's environment and the attempt's places. Out: the whole environment of a command.
//! Knows nothing of who runs it.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::{Host, Place};
use crate::process::MARKER;
use crate::profile::{EnvPolicy, Inherit, PROXY_PORT};

/// Passed by `inherit: core`, beside every `LC_*`.
const CORE: [&str; 8] = ["PATH", "LANG", "LANGUAGE", "TZ", "USER", "LOGNAME", "SHELL", "CI"];

/// Name the places of toolchains and trust stores; passed with `toolchains`.
const TOOLCHAINS: [&str; 42] = [
    "ANDROID_HOME",
    "ANDROID_SDK_ROOT",
    "ASDF_DATA_DIR",
    "CARGO_HOME",
    "CONDA_PREFIX",
    "CURL_CA_BUNDLE",
    "DENO_DIR",
    "DOTNET_ROOT",
    "FNM_DIR",
    "GEM_HOME",
    "GEM_PATH",
    "GOMODCACHE",
    "GOPATH",
    "GOROOT",
    "GOTOOLCHAIN",
    "GRADLE_HOME",
    "JAVA_HOME",
    "JDK_HOME",
    "LD_LIBRARY_PATH",
    "M2_HOME",
    "MAVEN_HOME",
    "MISE_DATA_DIR",
    "NIX_SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "NODE_PATH",
    "NVM_BIN",
    "NVM_DIR",
    "PKG_CONFIG_PATH",
    "PNPM_HOME",
    "PYENV_ROOT",
    "PYTHONHOME",
    "PYTHONPATH",
    "RBENV_ROOT",
    "REQUESTS_CA_BUNDLE",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "RUST_SRC_PATH",
    "SDKMAN_DIR",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "VIRTUAL_ENV",
    "VOLTA_HOME",
];

/// Toolchain places that are found through HOME unless a variable says otherwise. HOME is private,
/// so without these a `rustc` or `python` that is a shim finds nothing.
const BELOW_HOME: [(&str, &str); 8] = [
    ("ASDF_DATA_DIR", ".asdf"),
    ("CARGO_HOME", ".cargo"),
    ("NVM_DIR", ".nvm"),
    ("PYENV_ROOT", ".pyenv"),
    ("RBENV_ROOT", ".rbenv"),
    ("RUSTUP_HOME", ".rustup"),
    ("SDKMAN_DIR", ".sdkman"),
    ("VOLTA_HOME", ".volta"),
];

/// Folders of the private home, by the variable that names them.
const PRIVATE: [(&str, &str); 4] = [
    ("XDG_CACHE_HOME", ".cache"),
    ("XDG_CONFIG_HOME", ".config"),
    ("XDG_DATA_HOME", ".local/share"),
    ("XDG_STATE_HOME", ".local/state"),
];

/// Returns the whole environment of commands.
///
/// Each line wins over the ones before it: what `inherit` takes over, `TERM=dumb`, toolchain
/// places, names in `pass` (a `*` at the end stands for any rest), the private folders, values in
/// `set`, the run's marker. A name in `secret_names` is never there, wherever it comes from: the
/// names are those of provider keys (P6).
pub fn environment(
    policy: &EnvPolicy,
    host: &Host,
    place: &Place,
    secret_names: &[String],
) -> BTreeMap<String, String> {
    let takes = |name: &str| {
        let inherited = match policy.inherit {
            Inherit::None => false,
            Inherit::Core => CORE.contains(&name) || name.starts_with("LC_"),
            Inherit::All => true,
        };
        let is_toolchain = policy.toolchains
            && policy.inherit != Inherit::None
            && TOOLCHAINS.binary_search(&name).is_ok();
        inherited || is_toolchain || policy.pass.iter().any(|pattern| is_named(pattern, name))
    };
    let mut env: BTreeMap<String, String> = host
        .env
        .iter()
        .filter(|(name, value)| takes(name) && is_clean(name) && !value.contains('\0'))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    if policy.inherit != Inherit::None {
        env.insert("TERM".to_owned(), "dumb".to_owned());
        if policy.toolchains {
            toolchains_below_home(&mut env, host);
        }
    }
    let mut put = |name: &str, path: &Path| {
        env.insert(name.to_owned(), path.to_string_lossy().into_owned());
    };
    put("HOME", &place.home);
    for name in ["TMPDIR", "TMP", "TEMP"] {
        put(name, &place.tmp);
    }
    for (name, folder) in PRIVATE {
        put(name, &place.home.join(folder));
    }
    env.remove("XDG_RUNTIME_DIR");
    if !place.git.is_empty() {
        // A look at a repository must not try to write there: git(1).
        env.insert("GIT_OPTIONAL_LOCKS".to_owned(), "0".to_owned());
    }
    env.extend(policy.set.iter().map(|(name, value)| (name.clone(), value.clone())));
    if is_of_another(&place.workspace, host.uid) {
        trust_folders(&mut env);
    }
    env.insert(MARKER.to_owned(), place.marker.clone());
    env.retain(|name, _| !secret_names.contains(name));
    env
}

/// Whether somebody else than `uid` owns `folder`. Git refuses to work there unless it is told:
/// `safe.directory` of git-config(1).
fn is_of_another(folder: &Path, uid: u32) -> bool {
    std::fs::metadata(folder).is_ok_and(|facts| facts.uid() != uid)
}

/// Lets git work in folders of other users: `GIT_CONFIG_COUNT` of git(1), behind what is there. What
/// their configuration could start is confined as the command is.
fn trust_folders(env: &mut BTreeMap<String, String>) {
    let count: u32 = env.get("GIT_CONFIG_COUNT").and_then(|count| count.parse().ok()).unwrap_or(0);
    env.insert(format!("GIT_CONFIG_KEY_{count}"), "safe.directory".to_owned());
    env.insert(format!("GIT_CONFIG_VALUE_{count}"), "*".to_owned());
    env.insert("GIT_CONFIG_COUNT".to_owned(), count.saturating_add(1).to_string());
}

fn toolchains_below_home(env: &mut BTreeMap<String, String>, host: &Host) {
    let Some(home) = &host.home else { return };
    for (name, folder) in BELOW_HOME {
        let place = home.join(folder);
        if !env.contains_key(name) && place.is_dir() {
            env.insert(name.to_owned(), place.to_string_lossy().into_owned());
        }
    }
}

/// Leads the programs of a command to the proxy inside, by the names that common tools look at. Its
/// own `set` wins; what is inherited doesn't, since the operator's proxies lie outside.
///
/// `GIT_SSH_COMMAND` is not among them: SSH speaks to no proxy of HTTP by itself. A JVM takes its
/// options from `JAVA_TOOL_OPTIONS`, to which these are added.
pub(super) fn with_proxy(env: &mut BTreeMap<String, String>, policy: &EnvPolicy) {
    let url = format!("http://127.0.0.1:{PROXY_PORT}");
    for name in ["http_proxy", "https_proxy", "all_proxy"] {
        env.insert(name.to_owned(), url.clone());
        env.insert(name.to_ascii_uppercase(), url.clone());
    }
    // npm reads its own names in lower case alone.
    for name in ["npm_config_proxy", "npm_config_https_proxy"] {
        env.insert(name.to_owned(), url.clone());
    }
    for name in ["no_proxy", "NO_PROXY", "npm_config_noproxy"] {
        env.insert(name.to_owned(), "localhost,127.0.0.1,::1".to_owned());
    }
    // Node looks at the variables only when it is told to.
    env.insert("NODE_USE_ENV_PROXY".to_owned(), "1".to_owned());
    let java = ["http", "https"]
        .map(|scheme| format!("-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort={PROXY_PORT}"));
    let options = env.entry("JAVA_TOOL_OPTIONS".to_owned()).or_default();
    if !options.is_empty() {
        options.push(' ');
    }
    options.push_str(&java.join(" "));
    options.push_str(" -Dhttp.nonProxyHosts=localhost|127.*|[::1]");
    env.extend(policy.set.iter().map(|(name, value)| (name.clone(), value.clone())));
}

fn is_named(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |start| name.starts_with(start))
}

/// A name that can stand in an environment.
fn is_clean(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use super::{CORE, TOOLCHAINS, environment, with_proxy};
    use crate::profile::{EnvPolicy, Inherit};
    use crate::sandbox::{Host, Place};

    fn host() -> Host {
        let env = [
            ("PATH", "/bin"),
            ("LC_ALL", "C"),
            ("TERM", "xterm"),
            ("HOME", "/home/u"),
            ("OPENAI_API_KEY", "k"),
            ("GITHUB_TOKEN", "t"),
            ("JAVA_HOME", "/jdk"),
            ("XDG_RUNTIME_DIR", "/run/user/1"),
            ("SSH_AUTH_SOCK", "/s"),
        ];
        Host {
            binary: PathBuf::from("/bin/horseman"),
            home: Some(PathBuf::from("/nowhere")),
            env: env.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            uid: 1,
        }
    }

    fn place() -> Place {
        Place {
            workspace: PathBuf::from("/w"),
            home: PathBuf::from("/p/home"),
            tmp: PathBuf::from("/p/tmp"),
            read_extra: Vec::new(),
            write_extra: Vec::new(),
            marker: "/p".to_owned(),
            is_disposable: true,
            ..Place::default()
        }
    }

    fn made(policy: &EnvPolicy) -> BTreeMap<String, String> {
        environment(policy, &host(), &place(), &["OPENAI_API_KEY".to_owned()])
    }

    #[test]
    fn p6_only_the_allow_list_is_passed() {
        let env = made(&EnvPolicy::default());
        let names: Vec<&str> = env.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "HOME",
                "HORSEMAN_STATE",
                "JAVA_HOME",
                "LC_ALL",
                "PATH",
                "TEMP",
                "TERM",
                "TMP",
                "TMPDIR",
                "XDG_CACHE_HOME",
                "XDG_CONFIG_HOME",
                "XDG_DATA_HOME",
                "XDG_STATE_HOME"
            ]
        );
        assert_eq!(env["HOME"], "/p/home");
        assert_eq!(env["TERM"], "dumb");
    }

    #[test]
    fn p6_a_provider_key_passes_in_no_way() {
        let policy = EnvPolicy {
            inherit: Inherit::All,
            pass: vec!["OPENAI_*".to_owned()],
            set: [("OPENAI_API_KEY".to_owned(), "k".to_owned())].into(),
            ..EnvPolicy::default()
        };
        let env = made(&policy);
        assert!(!env.contains_key("OPENAI_API_KEY"));
        assert!(!env.contains_key("XDG_RUNTIME_DIR"));
        assert_eq!(env["GITHUB_TOKEN"], "t");
    }

    #[test]
    fn what_is_set_wins_but_for_the_marker() {
        let policy = EnvPolicy {
            inherit: Inherit::None,
            pass: vec!["PATH".to_owned()],
            set: [("HOME".to_owned(), "/x".to_owned()), ("HORSEMAN_STATE".to_owned(), "y".into())]
                .into(),
            ..EnvPolicy::default()
        };
        let env = made(&policy);
        assert_eq!(env["PATH"], "/bin");
        assert_eq!(env["HOME"], "/x");
        assert_eq!(env["HORSEMAN_STATE"], "/p");
        assert!(!env.contains_key("TERM"));
    }

    #[test]
    fn the_proxy_inside_is_named_instead_of_the_operators() {
        let mut env: BTreeMap<String, String> = [
            ("HTTPS_PROXY".to_owned(), "http://u:p@outside".to_owned()),
            ("JAVA_TOOL_OPTIONS".to_owned(), "-Xmx1g".to_owned()),
        ]
        .into();
        let set =
            [("ALL_PROXY".to_owned(), "x".to_owned()), ("HTTPS_PROXY".to_owned(), "y".into())];
        with_proxy(&mut env, &EnvPolicy::default());
        assert_eq!(env["HTTPS_PROXY"], "http://127.0.0.1:3128");
        assert_eq!(env["https_proxy"], "http://127.0.0.1:3128");
        assert!(env["JAVA_TOOL_OPTIONS"].starts_with("-Xmx1g -Dhttp.proxyHost=127.0.0.1 "));
        with_proxy(&mut env, &EnvPolicy { set: set.into(), ..EnvPolicy::default() });
        assert_eq!((env["ALL_PROXY"].as_str(), env["HTTPS_PROXY"].as_str()), ("x", "y"));
    }

    #[test]
    fn the_lists_are_sorted_and_disjoint() {
        assert!(TOOLCHAINS.is_sorted());
        assert!(CORE.iter().all(|name| !TOOLCHAINS.contains(name)));
    }
}
