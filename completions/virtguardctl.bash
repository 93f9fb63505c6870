# SPDX-License-Identifier: Apache-2.0
# Completion of virtguardctl(1) for bash.

_virtguardctl_words() {
    mapfile -t COMPREPLY < <(compgen -W "$1" -- "$2")
}

_virtguardctl_files() {
    compopt -o filenames
    mapfile -t COMPREPLY < <(compgen -f -- "$1")
}

_virtguardctl() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
    # "--color=never" comes as three words.
    [[ $current != '=' ]] || current=
    [[ $previous != '=' ]] || previous=${COMP_WORDS[COMP_CWORD - 2]}
    local common='--help --color --socket'
    declare -A options=(
        [status]='--json' [nodes]='--json' [domains]='--json'
        [export]='--format --name'
        [recent]='--json' [watch]='--json --no-wait' [metrics]=''
        [check]='--json'
        [explain]='--libvirt-uri --json'
        [policy]='' [policy check]='--json' [policy show]='--json' [policy diff]='--json'
        [overcommit]='--json' [overcommit get]='--json' [overcommit set]='' [overcommit reset]=''
        [mode]='--message --json' [mode maintenance]='--message'
        [reservation]='--json' [reservation list]='--json' [reservation cancel]=''
        [reservation add]='--xml --uuid --match --expires --force' [reservation renew]='--expires'
        [doctor]='--ledger --guests --libvirt-uri --policy-dir --root --json'
        [simulate]='--topology --pages --policy --json'
    )
    local commands='status nodes domains export recent watch metrics check explain policy overcommit mode reservation doctor simulate'

    local command='' index word
    for ((index = 1; index < COMP_CWORD; index++)); do
        word=${COMP_WORDS[index]}
        case $word in
        --socket | --color | --message) ((++index)) ;;
        -* | =) ;;
        *)
            if [[ -z $command ]]; then
                command=$word
            elif [[ $command == policy || $command == overcommit || $command == mode || $command == reservation ]]; then
                command="$command $word"
            fi
            ;;
        esac
    done

    case $previous in
    --color) _virtguardctl_words 'auto always never' "$current" && return ;;
    --format) _virtguardctl_words 'machinepool hypervisor placement' "$current" && return ;;
    --libvirt-uri) _virtguardctl_words 'qemu:///system' "$current" && return ;;
    --expires) _virtguardctl_words '15min never' "$current" && return ;;
    --xml | --socket | --policy | --policy-dir | --root | --topology) _virtguardctl_files "$current" && return ;;
    --name | --pages | --message | --uuid | --match) return ;;
    esac
    if [[ $current == -* ]]; then
        [[ -n $command ]] || common+=' --version'
        _virtguardctl_words "$common ${options[${command:-none}]-}" "$current"
        return
    fi
    case $command in
    '') _virtguardctl_words "$commands" "$current" ;;
    policy) _virtguardctl_words 'check show diff' "$current" ;;
    reservation) _virtguardctl_words 'list add renew cancel' "$current" ;;
    overcommit) _virtguardctl_words 'get set reset' "$current" ;;
    mode) _virtguardctl_words 'enforce observe off maintenance reset' "$current" ;;
    'overcommit set' | 'overcommit reset') _virtguardctl_words 'cpu memory ephemeral-storage' "$current" ;;
    explain) _virtguardctl_words "$(virsh --readonly list --all --name 2>/dev/null)" "$current" ;;
    simulate)
        case $current in
        start:* | running:*)
            # What stands before the colon is a word of its own where COMP_WORDBREAKS has it.
            _virtguardctl_files "${current#*:}"
            COMPREPLY=("${COMPREPLY[@]/#/${current%%:*}:}")
            ;;
        *) _virtguardctl_files "$current" ;;
        esac
        ;;
    check | 'policy check' | 'policy diff') _virtguardctl_files "$current" ;;
    esac
}

complete -F _virtguardctl virtguardctl
