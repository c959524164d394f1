_lock_exporter() {
    local i cur prev opts cmd
    COMPREPLY=()
    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
        cur="$2"
    else
        cur="${COMP_WORDS[COMP_CWORD]}"
    fi
    prev="$3"
    cmd=""
    opts=""

    for i in "${COMP_WORDS[@]:0:COMP_CWORD}"
    do
        case "${cmd},${i}" in
            ",$1")
                cmd="lock_exporter"
                ;;
            lock_exporter,check)
                cmd="lock_exporter__subcmd__check"
                ;;
            lock_exporter,completions)
                cmd="lock_exporter__subcmd__completions"
                ;;
            lock_exporter,demo)
                cmd="lock_exporter__subcmd__demo"
                ;;
            lock_exporter,healthcheck)
                cmd="lock_exporter__subcmd__healthcheck"
                ;;
            lock_exporter,help)
                cmd="lock_exporter__subcmd__help"
                ;;
            lock_exporter,man)
                cmd="lock_exporter__subcmd__man"
                ;;
            lock_exporter__subcmd__help,check)
                cmd="lock_exporter__subcmd__help__subcmd__check"
                ;;
            lock_exporter__subcmd__help,completions)
                cmd="lock_exporter__subcmd__help__subcmd__completions"
                ;;
            lock_exporter__subcmd__help,demo)
                cmd="lock_exporter__subcmd__help__subcmd__demo"
                ;;
            lock_exporter__subcmd__help,healthcheck)
                cmd="lock_exporter__subcmd__help__subcmd__healthcheck"
                ;;
            lock_exporter__subcmd__help,help)
                cmd="lock_exporter__subcmd__help__subcmd__help"
                ;;
            lock_exporter__subcmd__help,man)
                cmd="lock_exporter__subcmd__help__subcmd__man"
                ;;
            *)
                ;;
        esac
    done

    case "${cmd}" in
        lock_exporter)
            opts="-r -p -o -h -V --config.file --config.check --config.enable-auto-reload --config.auto-reload-interval --repo --repository-file --password-file --password-command --key-hint --cacert --insecure-no-password --insecure-tls --option --host.name --scan.interval --scan.idle-interval --scan.timeout --scan.concurrency --scan.hold --shard --total-shards --host.alias --host.name-unique --collector.evidence --no-collector.evidence --collector.process --collector.evidence.program --state.dir --path.procfs --path.rootfs --web.listen-address --web.systemd-socket --web.config.file --web.probe-listen-address --web.route-prefix --web.external-url --web.telemetry-path --web.max-requests --web.enable-lifecycle --web.ready-timeout --log.level --log.format --help --version check demo healthcheck completions man help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 1 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --config.file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --config.auto-reload-interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --repo)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -r)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --repository-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --password-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -p)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --password-command)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-hint)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cacert)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --option)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -o)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --host.name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scan.interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scan.idle-interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scan.timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scan.concurrency)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scan.hold)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --shard)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --total-shards)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --host.alias)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --host.name-unique)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --collector.evidence.program)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --state.dir)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --path.procfs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --path.rootfs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.listen-address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.config.file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.probe-listen-address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.route-prefix)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.external-url)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.telemetry-path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.max-requests)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.ready-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --log.level)
                    COMPREPLY=($(compgen -W "debug info warn error" -- "${cur}"))
                    return 0
                    ;;
                --log.format)
                    COMPREPLY=($(compgen -W "logfmt json" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        lock_exporter__subcmd__check)
            opts="-r -p -o -h --output --textfile --config.file --repo --repository-file --password-file --password-command --key-hint --cacert --insecure-no-password --insecure-tls --option --host.name --scan.interval --scan.idle-interval --scan.timeout --scan.concurrency --scan.hold --host.alias --host.name-unique --collector.evidence --no-collector.evidence --collector.process --collector.evidence.program --state.dir --path.procfs --path.rootfs --web.listen-address --web.config.file --web.probe-listen-address --web.route-prefix --web.external-url --log.level --log.format --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --output)
                    COMPREPLY=($(compgen -W "table json prom openmetrics nagios" -- "${cur}"))
                    return 0
                    ;;
                --textfile)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --config.file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --repo)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -r)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --repository-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --password-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -p)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --password-command)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-hint)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cacert)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --option)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -o)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --host.name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scan.interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scan.idle-interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scan.timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scan.concurrency)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scan.hold)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --host.alias)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --host.name-unique)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --collector.evidence.program)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --state.dir)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --path.procfs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --path.rootfs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.listen-address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.config.file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.probe-listen-address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.route-prefix)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.external-url)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --log.level)
                    COMPREPLY=($(compgen -W "debug info warn error" -- "${cur}"))
                    return 0
                    ;;
                --log.format)
                    COMPREPLY=($(compgen -W "logfmt json" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        lock_exporter__subcmd__completions)
            opts="-r -p -o -h --config.file --repo --repository-file --password-file --password-command --key-hint --cacert --insecure-no-password --insecure-tls --option --host.name --scan.interval --scan.idle-interval --scan.timeout --scan.concurrency --scan.hold --host.alias --host.name-unique --collector.evidence --no-collector.evidence --collector.process --collector.evidence.program --state.dir --path.procfs --path.rootfs --web.listen-address --web.config.file --web.probe-listen-address --web.route-prefix --web.external-url --log.level --log.format --help bash elvish fish powershell zsh"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --config.file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --repo)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -r)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --repository-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --password-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -p)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --password-command)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-hint)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cacert)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --option)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -o)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --host.name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scan.interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scan.idle-interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scan.timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scan.concurrency)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scan.hold)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --host.alias)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --host.name-unique)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --collector.evidence.program)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --state.dir)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --path.procfs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --path.rootfs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.listen-address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.config.file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.probe-listen-address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.route-prefix)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.external-url)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --log.level)
                    COMPREPLY=($(compgen -W "debug info warn error" -- "${cur}"))
                    return 0
                    ;;
                --log.format)
                    COMPREPLY=($(compgen -W "logfmt json" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        lock_exporter__subcmd__demo)
            opts="-r -p -o -h --once --config.file --repo --repository-file --password-file --password-command --key-hint --cacert --insecure-no-password --insecure-tls --option --host.name --scan.interval --scan.idle-interval --scan.timeout --scan.concurrency --scan.hold --host.alias --host.name-unique --collector.evidence --no-collector.evidence --collector.process --collector.evidence.program --state.dir --path.procfs --path.rootfs --web.listen-address --web.config.file --web.probe-listen-address --web.route-prefix --web.external-url --log.level --log.format --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --config.file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --repo)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -r)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --repository-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --password-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -p)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --password-command)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-hint)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cacert)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --option)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -o)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --host.name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scan.interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scan.idle-interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scan.timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scan.concurrency)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scan.hold)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --host.alias)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --host.name-unique)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --collector.evidence.program)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --state.dir)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --path.procfs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --path.rootfs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.listen-address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.config.file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.probe-listen-address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.route-prefix)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.external-url)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --log.level)
                    COMPREPLY=($(compgen -W "debug info warn error" -- "${cur}"))
                    return 0
                    ;;
                --log.format)
                    COMPREPLY=($(compgen -W "logfmt json" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        lock_exporter__subcmd__healthcheck)
            opts="-r -p -o -h --config.file --repo --repository-file --password-file --password-command --key-hint --cacert --insecure-no-password --insecure-tls --option --host.name --scan.interval --scan.idle-interval --scan.timeout --scan.concurrency --scan.hold --host.alias --host.name-unique --collector.evidence --no-collector.evidence --collector.process --collector.evidence.program --state.dir --path.procfs --path.rootfs --web.listen-address --web.config.file --web.probe-listen-address --web.route-prefix --web.external-url --log.level --log.format --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --config.file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --repo)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -r)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --repository-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --password-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -p)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --password-command)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-hint)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cacert)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --option)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -o)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --host.name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scan.interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scan.idle-interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scan.timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scan.concurrency)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scan.hold)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --host.alias)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --host.name-unique)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --collector.evidence.program)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --state.dir)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --path.procfs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --path.rootfs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.listen-address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.config.file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.probe-listen-address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.route-prefix)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.external-url)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --log.level)
                    COMPREPLY=($(compgen -W "debug info warn error" -- "${cur}"))
                    return 0
                    ;;
                --log.format)
                    COMPREPLY=($(compgen -W "logfmt json" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        lock_exporter__subcmd__help)
            opts="check demo healthcheck completions man help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        lock_exporter__subcmd__help__subcmd__check)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        lock_exporter__subcmd__help__subcmd__completions)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        lock_exporter__subcmd__help__subcmd__demo)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        lock_exporter__subcmd__help__subcmd__healthcheck)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        lock_exporter__subcmd__help__subcmd__help)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        lock_exporter__subcmd__help__subcmd__man)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        lock_exporter__subcmd__man)
            opts="-r -p -o -h --config.file --repo --repository-file --password-file --password-command --key-hint --cacert --insecure-no-password --insecure-tls --option --host.name --scan.interval --scan.idle-interval --scan.timeout --scan.concurrency --scan.hold --host.alias --host.name-unique --collector.evidence --no-collector.evidence --collector.process --collector.evidence.program --state.dir --path.procfs --path.rootfs --web.listen-address --web.config.file --web.probe-listen-address --web.route-prefix --web.external-url --log.level --log.format --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --config.file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --repo)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -r)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --repository-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --password-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -p)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --password-command)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-hint)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cacert)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --option)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -o)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --host.name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scan.interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scan.idle-interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scan.timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scan.concurrency)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scan.hold)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --host.alias)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --host.name-unique)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --collector.evidence.program)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --state.dir)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --path.procfs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --path.rootfs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.listen-address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.config.file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.probe-listen-address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.route-prefix)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.external-url)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --log.level)
                    COMPREPLY=($(compgen -W "debug info warn error" -- "${cur}"))
                    return 0
                    ;;
                --log.format)
                    COMPREPLY=($(compgen -W "logfmt json" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
    esac
}

if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _lock_exporter -o nosort -o bashdefault -o default lock_exporter
else
    complete -F _lock_exporter -o bashdefault -o default lock_exporter
fi
