# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_lock_exporter_global_optspecs
    string join \n config.file= config.check config.enable-auto-reload config.auto-reload-interval= r/repo= repository-file= p/password-file= password-command= key-hint= cacert= insecure-no-password insecure-tls o/option= host.name= scan.interval= scan.idle-interval= scan.timeout= scan.concurrency= scan.hold= shard= total-shards= host.alias= host.name-unique= collector.evidence no-collector.evidence collector.process collector.evidence.program= state.dir= path.procfs= path.rootfs= web.listen-address= web.systemd-socket web.config.file= web.probe-listen-address= web.route-prefix= web.external-url= web.telemetry-path= web.max-requests= web.enable-lifecycle web.ready-timeout= log.level= log.format= h/help V/version
end

function __fish_lock_exporter_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_lock_exporter_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_lock_exporter_using_subcommand
    set -l cmd (__fish_lock_exporter_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l config.file -d 'Configuration file' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l config.auto-reload-interval -d 'How often is looked for such a change [default: 30s]' -r
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -s r -l repo -d 'restic repository, as for restic itself; can be given several times' -r
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l repository-file -d 'File with the repository string' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -s p -l password-file -d 'File with the repository password' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l password-command -d 'Command that prints the repository password' -r
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l key-hint -d 'Start of the id of the key to try first' -r
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l cacert -d 'Certificate authorities to trust beside the system\'s, PEM' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -s o -l option -d 'Extended option of restic' -r
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l host.name -d 'Name of this machine, in labels and for recognising its own locks' -r
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l scan.interval -d 'How often each target is scanned [default: 60s]' -r
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l scan.idle-interval -d 'How often instead a repository in which the last scan saw no lock file; fewer listings [default: as --scan.interval]' -r
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l scan.timeout -d 'How long one scan may take [default: 30s]' -r
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l scan.concurrency -d 'How many scans run at once [default: 16]' -r
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l scan.hold -d 'How long values stay shown without a successful scan [default: 15m]' -r
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l shard -d 'Which of the exporters this is, from 0; auto: the number at the end of POD_NAME' -r
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l total-shards -d 'How many exporters share the targets, by their names' -r
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l host.alias -d 'Another name by which locks of this machine are known; can be given several times' -r
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l host.name-unique -d 'Whether no other machine or container has these names; if not, no lock is called dead because its process is not here' -r -f -a "true\t''
false\t''"
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l collector.evidence.program -d 'Another program that holds repository locks as restic does; can be given several times' -r
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l state.dir -d 'Folder in which holds are remembered over restarts; made if only it is missing; one exporter at a time has it' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l path.procfs -d 'Where /proc is mounted' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l path.rootfs -d 'Where the root of the watched machine is mounted, when lock files are not in our own' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l web.listen-address -d 'Address to listen on; can be given several times' -r
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l web.config.file -d 'File with TLS certificates, users and headers, as other Prometheus exporters have it' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l web.probe-listen-address -d 'Another address, for /-/healthy and /-/ready alone, without TLS and password' -r
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l web.route-prefix -d 'Path before all paths; by default that of --web.external-url' -r
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l web.external-url -d 'URL by which browsers reach this exporter, behind a reverse proxy' -r
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l web.telemetry-path -d 'Path of the metrics' -r
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l web.max-requests -d 'Scrapes answered at once; 0 = no limit' -r
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l web.ready-timeout -d 'Be ready after this time although targets were not all looked at' -r
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l log.level -d 'Least severe messages that are logged [default: info; warn for check]' -r -f -a "debug\t'Every scan'
info\t'Start, stop, reload'
warn\t'Targets that begin to fail and recover'
error\t'Faults of the exporter'"
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l log.format -d 'How they are written' -r -f -a "logfmt\t'key=value'
json\t'One JSON object a line'"
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l config.check -d 'Check the configuration and the files it names, print everything that is wrong, and end'
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l config.enable-auto-reload -d 'Reload when any file changed that the configuration is made of: itself, passwords, variables, authorities, the web configuration'
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l insecure-no-password -d 'Open repositories that have an empty password'
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l insecure-tls -d 'Trust any certificate of the backend'
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l collector.evidence -d 'Look for the processes that hold restic\'s locks of this machine (this is the default)'
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l no-collector.evidence -d 'Do not look for them'
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l collector.process -d 'Show the processes of this machine that can hold repository locks, so that other exporters\' locks can be joined with them'
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l web.systemd-socket -d 'Listen on the sockets that systemd passes instead'
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -l web.enable-lifecycle -d 'Allow POST and PUT to /-/reload'
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -s V -l version -d 'Print version'
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -f -a "check" -d 'Scan once, print what was found; exit 0 ok, 1 warning, 2 critical, 3 unknown'
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -f -a "demo" -d 'Make repositories with locks of every kind, serve them, remove them at exit'
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -f -a "healthcheck" -d 'Ask a running exporter whether it is healthy; exit 0 or 1'
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -f -a "completions" -d 'Print completions for a shell'
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -f -a "man" -d 'Print the manual page'
complete -c lock_exporter -n "__fish_lock_exporter_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand check" -l output -d 'How to print' -r -f -a "table\t'For people'
json\t'For programs; the same objects as the HTTP API'
prom\t'Prometheus text format'
openmetrics\t'OpenMetrics 1.0'
nagios\t'One line with the plugin conventions of Nagios and Icinga'"
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand check" -l textfile -d 'Also write DIR/lock_exporter.prom, for the textfile collector of node_exporter' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand check" -l config.file -d 'Configuration file' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand check" -s r -l repo -d 'restic repository, as for restic itself; can be given several times' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand check" -l repository-file -d 'File with the repository string' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand check" -s p -l password-file -d 'File with the repository password' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand check" -l password-command -d 'Command that prints the repository password' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand check" -l key-hint -d 'Start of the id of the key to try first' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand check" -l cacert -d 'Certificate authorities to trust beside the system\'s, PEM' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand check" -s o -l option -d 'Extended option of restic' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand check" -l host.name -d 'Name of this machine, in labels and for recognising its own locks' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand check" -l scan.interval -d 'How often each target is scanned [default: 60s]' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand check" -l scan.idle-interval -d 'How often instead a repository in which the last scan saw no lock file; fewer listings [default: as --scan.interval]' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand check" -l scan.timeout -d 'How long one scan may take [default: 30s]' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand check" -l scan.concurrency -d 'How many scans run at once [default: 16]' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand check" -l scan.hold -d 'How long values stay shown without a successful scan [default: 15m]' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand check" -l host.alias -d 'Another name by which locks of this machine are known; can be given several times' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand check" -l host.name-unique -d 'Whether no other machine or container has these names; if not, no lock is called dead because its process is not here' -r -f -a "true\t''
false\t''"
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand check" -l collector.evidence.program -d 'Another program that holds repository locks as restic does; can be given several times' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand check" -l state.dir -d 'Folder in which holds are remembered over restarts; made if only it is missing; one exporter at a time has it' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand check" -l path.procfs -d 'Where /proc is mounted' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand check" -l path.rootfs -d 'Where the root of the watched machine is mounted, when lock files are not in our own' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand check" -l web.listen-address -d 'Address to listen on; can be given several times' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand check" -l web.config.file -d 'File with TLS certificates, users and headers, as other Prometheus exporters have it' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand check" -l web.probe-listen-address -d 'Another address, for /-/healthy and /-/ready alone, without TLS and password' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand check" -l web.route-prefix -d 'Path before all paths; by default that of --web.external-url' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand check" -l web.external-url -d 'URL by which browsers reach this exporter, behind a reverse proxy' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand check" -l log.level -d 'Least severe messages that are logged [default: info; warn for check]' -r -f -a "debug\t'Every scan'
info\t'Start, stop, reload'
warn\t'Targets that begin to fail and recover'
error\t'Faults of the exporter'"
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand check" -l log.format -d 'How they are written' -r -f -a "logfmt\t'key=value'
json\t'One JSON object a line'"
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand check" -l insecure-no-password -d 'Open repositories that have an empty password'
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand check" -l insecure-tls -d 'Trust any certificate of the backend'
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand check" -l collector.evidence -d 'Look for the processes that hold restic\'s locks of this machine (this is the default)'
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand check" -l no-collector.evidence -d 'Do not look for them'
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand check" -l collector.process -d 'Show the processes of this machine that can hold repository locks, so that other exporters\' locks can be joined with them'
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand check" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand demo" -l config.file -d 'Configuration file' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand demo" -s r -l repo -d 'restic repository, as for restic itself; can be given several times' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand demo" -l repository-file -d 'File with the repository string' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand demo" -s p -l password-file -d 'File with the repository password' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand demo" -l password-command -d 'Command that prints the repository password' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand demo" -l key-hint -d 'Start of the id of the key to try first' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand demo" -l cacert -d 'Certificate authorities to trust beside the system\'s, PEM' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand demo" -s o -l option -d 'Extended option of restic' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand demo" -l host.name -d 'Name of this machine, in labels and for recognising its own locks' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand demo" -l scan.interval -d 'How often each target is scanned [default: 60s]' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand demo" -l scan.idle-interval -d 'How often instead a repository in which the last scan saw no lock file; fewer listings [default: as --scan.interval]' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand demo" -l scan.timeout -d 'How long one scan may take [default: 30s]' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand demo" -l scan.concurrency -d 'How many scans run at once [default: 16]' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand demo" -l scan.hold -d 'How long values stay shown without a successful scan [default: 15m]' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand demo" -l host.alias -d 'Another name by which locks of this machine are known; can be given several times' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand demo" -l host.name-unique -d 'Whether no other machine or container has these names; if not, no lock is called dead because its process is not here' -r -f -a "true\t''
false\t''"
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand demo" -l collector.evidence.program -d 'Another program that holds repository locks as restic does; can be given several times' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand demo" -l state.dir -d 'Folder in which holds are remembered over restarts; made if only it is missing; one exporter at a time has it' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand demo" -l path.procfs -d 'Where /proc is mounted' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand demo" -l path.rootfs -d 'Where the root of the watched machine is mounted, when lock files are not in our own' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand demo" -l web.listen-address -d 'Address to listen on; can be given several times' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand demo" -l web.config.file -d 'File with TLS certificates, users and headers, as other Prometheus exporters have it' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand demo" -l web.probe-listen-address -d 'Another address, for /-/healthy and /-/ready alone, without TLS and password' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand demo" -l web.route-prefix -d 'Path before all paths; by default that of --web.external-url' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand demo" -l web.external-url -d 'URL by which browsers reach this exporter, behind a reverse proxy' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand demo" -l log.level -d 'Least severe messages that are logged [default: info; warn for check]' -r -f -a "debug\t'Every scan'
info\t'Start, stop, reload'
warn\t'Targets that begin to fail and recover'
error\t'Faults of the exporter'"
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand demo" -l log.format -d 'How they are written' -r -f -a "logfmt\t'key=value'
json\t'One JSON object a line'"
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand demo" -l once -d 'Print the metrics once and end'
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand demo" -l insecure-no-password -d 'Open repositories that have an empty password'
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand demo" -l insecure-tls -d 'Trust any certificate of the backend'
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand demo" -l collector.evidence -d 'Look for the processes that hold restic\'s locks of this machine (this is the default)'
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand demo" -l no-collector.evidence -d 'Do not look for them'
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand demo" -l collector.process -d 'Show the processes of this machine that can hold repository locks, so that other exporters\' locks can be joined with them'
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand demo" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand healthcheck" -l config.file -d 'Configuration file' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand healthcheck" -s r -l repo -d 'restic repository, as for restic itself; can be given several times' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand healthcheck" -l repository-file -d 'File with the repository string' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand healthcheck" -s p -l password-file -d 'File with the repository password' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand healthcheck" -l password-command -d 'Command that prints the repository password' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand healthcheck" -l key-hint -d 'Start of the id of the key to try first' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand healthcheck" -l cacert -d 'Certificate authorities to trust beside the system\'s, PEM' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand healthcheck" -s o -l option -d 'Extended option of restic' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand healthcheck" -l host.name -d 'Name of this machine, in labels and for recognising its own locks' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand healthcheck" -l scan.interval -d 'How often each target is scanned [default: 60s]' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand healthcheck" -l scan.idle-interval -d 'How often instead a repository in which the last scan saw no lock file; fewer listings [default: as --scan.interval]' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand healthcheck" -l scan.timeout -d 'How long one scan may take [default: 30s]' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand healthcheck" -l scan.concurrency -d 'How many scans run at once [default: 16]' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand healthcheck" -l scan.hold -d 'How long values stay shown without a successful scan [default: 15m]' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand healthcheck" -l host.alias -d 'Another name by which locks of this machine are known; can be given several times' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand healthcheck" -l host.name-unique -d 'Whether no other machine or container has these names; if not, no lock is called dead because its process is not here' -r -f -a "true\t''
false\t''"
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand healthcheck" -l collector.evidence.program -d 'Another program that holds repository locks as restic does; can be given several times' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand healthcheck" -l state.dir -d 'Folder in which holds are remembered over restarts; made if only it is missing; one exporter at a time has it' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand healthcheck" -l path.procfs -d 'Where /proc is mounted' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand healthcheck" -l path.rootfs -d 'Where the root of the watched machine is mounted, when lock files are not in our own' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand healthcheck" -l web.listen-address -d 'Address to listen on; can be given several times' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand healthcheck" -l web.config.file -d 'File with TLS certificates, users and headers, as other Prometheus exporters have it' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand healthcheck" -l web.probe-listen-address -d 'Another address, for /-/healthy and /-/ready alone, without TLS and password' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand healthcheck" -l web.route-prefix -d 'Path before all paths; by default that of --web.external-url' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand healthcheck" -l web.external-url -d 'URL by which browsers reach this exporter, behind a reverse proxy' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand healthcheck" -l log.level -d 'Least severe messages that are logged [default: info; warn for check]' -r -f -a "debug\t'Every scan'
info\t'Start, stop, reload'
warn\t'Targets that begin to fail and recover'
error\t'Faults of the exporter'"
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand healthcheck" -l log.format -d 'How they are written' -r -f -a "logfmt\t'key=value'
json\t'One JSON object a line'"
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand healthcheck" -l insecure-no-password -d 'Open repositories that have an empty password'
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand healthcheck" -l insecure-tls -d 'Trust any certificate of the backend'
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand healthcheck" -l collector.evidence -d 'Look for the processes that hold restic\'s locks of this machine (this is the default)'
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand healthcheck" -l no-collector.evidence -d 'Do not look for them'
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand healthcheck" -l collector.process -d 'Show the processes of this machine that can hold repository locks, so that other exporters\' locks can be joined with them'
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand healthcheck" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand completions" -l config.file -d 'Configuration file' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand completions" -s r -l repo -d 'restic repository, as for restic itself; can be given several times' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand completions" -l repository-file -d 'File with the repository string' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand completions" -s p -l password-file -d 'File with the repository password' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand completions" -l password-command -d 'Command that prints the repository password' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand completions" -l key-hint -d 'Start of the id of the key to try first' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand completions" -l cacert -d 'Certificate authorities to trust beside the system\'s, PEM' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand completions" -s o -l option -d 'Extended option of restic' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand completions" -l host.name -d 'Name of this machine, in labels and for recognising its own locks' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand completions" -l scan.interval -d 'How often each target is scanned [default: 60s]' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand completions" -l scan.idle-interval -d 'How often instead a repository in which the last scan saw no lock file; fewer listings [default: as --scan.interval]' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand completions" -l scan.timeout -d 'How long one scan may take [default: 30s]' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand completions" -l scan.concurrency -d 'How many scans run at once [default: 16]' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand completions" -l scan.hold -d 'How long values stay shown without a successful scan [default: 15m]' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand completions" -l host.alias -d 'Another name by which locks of this machine are known; can be given several times' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand completions" -l host.name-unique -d 'Whether no other machine or container has these names; if not, no lock is called dead because its process is not here' -r -f -a "true\t''
false\t''"
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand completions" -l collector.evidence.program -d 'Another program that holds repository locks as restic does; can be given several times' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand completions" -l state.dir -d 'Folder in which holds are remembered over restarts; made if only it is missing; one exporter at a time has it' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand completions" -l path.procfs -d 'Where /proc is mounted' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand completions" -l path.rootfs -d 'Where the root of the watched machine is mounted, when lock files are not in our own' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand completions" -l web.listen-address -d 'Address to listen on; can be given several times' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand completions" -l web.config.file -d 'File with TLS certificates, users and headers, as other Prometheus exporters have it' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand completions" -l web.probe-listen-address -d 'Another address, for /-/healthy and /-/ready alone, without TLS and password' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand completions" -l web.route-prefix -d 'Path before all paths; by default that of --web.external-url' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand completions" -l web.external-url -d 'URL by which browsers reach this exporter, behind a reverse proxy' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand completions" -l log.level -d 'Least severe messages that are logged [default: info; warn for check]' -r -f -a "debug\t'Every scan'
info\t'Start, stop, reload'
warn\t'Targets that begin to fail and recover'
error\t'Faults of the exporter'"
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand completions" -l log.format -d 'How they are written' -r -f -a "logfmt\t'key=value'
json\t'One JSON object a line'"
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand completions" -l insecure-no-password -d 'Open repositories that have an empty password'
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand completions" -l insecure-tls -d 'Trust any certificate of the backend'
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand completions" -l collector.evidence -d 'Look for the processes that hold restic\'s locks of this machine (this is the default)'
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand completions" -l no-collector.evidence -d 'Do not look for them'
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand completions" -l collector.process -d 'Show the processes of this machine that can hold repository locks, so that other exporters\' locks can be joined with them'
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand completions" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand man" -l config.file -d 'Configuration file' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand man" -s r -l repo -d 'restic repository, as for restic itself; can be given several times' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand man" -l repository-file -d 'File with the repository string' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand man" -s p -l password-file -d 'File with the repository password' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand man" -l password-command -d 'Command that prints the repository password' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand man" -l key-hint -d 'Start of the id of the key to try first' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand man" -l cacert -d 'Certificate authorities to trust beside the system\'s, PEM' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand man" -s o -l option -d 'Extended option of restic' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand man" -l host.name -d 'Name of this machine, in labels and for recognising its own locks' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand man" -l scan.interval -d 'How often each target is scanned [default: 60s]' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand man" -l scan.idle-interval -d 'How often instead a repository in which the last scan saw no lock file; fewer listings [default: as --scan.interval]' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand man" -l scan.timeout -d 'How long one scan may take [default: 30s]' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand man" -l scan.concurrency -d 'How many scans run at once [default: 16]' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand man" -l scan.hold -d 'How long values stay shown without a successful scan [default: 15m]' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand man" -l host.alias -d 'Another name by which locks of this machine are known; can be given several times' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand man" -l host.name-unique -d 'Whether no other machine or container has these names; if not, no lock is called dead because its process is not here' -r -f -a "true\t''
false\t''"
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand man" -l collector.evidence.program -d 'Another program that holds repository locks as restic does; can be given several times' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand man" -l state.dir -d 'Folder in which holds are remembered over restarts; made if only it is missing; one exporter at a time has it' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand man" -l path.procfs -d 'Where /proc is mounted' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand man" -l path.rootfs -d 'Where the root of the watched machine is mounted, when lock files are not in our own' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand man" -l web.listen-address -d 'Address to listen on; can be given several times' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand man" -l web.config.file -d 'File with TLS certificates, users and headers, as other Prometheus exporters have it' -r -F
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand man" -l web.probe-listen-address -d 'Another address, for /-/healthy and /-/ready alone, without TLS and password' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand man" -l web.route-prefix -d 'Path before all paths; by default that of --web.external-url' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand man" -l web.external-url -d 'URL by which browsers reach this exporter, behind a reverse proxy' -r
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand man" -l log.level -d 'Least severe messages that are logged [default: info; warn for check]' -r -f -a "debug\t'Every scan'
info\t'Start, stop, reload'
warn\t'Targets that begin to fail and recover'
error\t'Faults of the exporter'"
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand man" -l log.format -d 'How they are written' -r -f -a "logfmt\t'key=value'
json\t'One JSON object a line'"
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand man" -l insecure-no-password -d 'Open repositories that have an empty password'
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand man" -l insecure-tls -d 'Trust any certificate of the backend'
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand man" -l collector.evidence -d 'Look for the processes that hold restic\'s locks of this machine (this is the default)'
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand man" -l no-collector.evidence -d 'Do not look for them'
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand man" -l collector.process -d 'Show the processes of this machine that can hold repository locks, so that other exporters\' locks can be joined with them'
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand man" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand help; and not __fish_seen_subcommand_from check demo healthcheck completions man help" -f -a "check" -d 'Scan once, print what was found; exit 0 ok, 1 warning, 2 critical, 3 unknown'
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand help; and not __fish_seen_subcommand_from check demo healthcheck completions man help" -f -a "demo" -d 'Make repositories with locks of every kind, serve them, remove them at exit'
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand help; and not __fish_seen_subcommand_from check demo healthcheck completions man help" -f -a "healthcheck" -d 'Ask a running exporter whether it is healthy; exit 0 or 1'
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand help; and not __fish_seen_subcommand_from check demo healthcheck completions man help" -f -a "completions" -d 'Print completions for a shell'
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand help; and not __fish_seen_subcommand_from check demo healthcheck completions man help" -f -a "man" -d 'Print the manual page'
complete -c lock_exporter -n "__fish_lock_exporter_using_subcommand help; and not __fish_seen_subcommand_from check demo healthcheck completions man help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
