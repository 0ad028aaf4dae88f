# Completion of lutra's options, commands and files for bash.
_lutra() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
  case $before in
    --device) COMPREPLY=($(compgen -W "cpu cuda cuda:0" -- "$word")); return ;;
    cache) COMPREPLY=($(compgen -W "list clear" -- "$word")); return ;;
    tune) COMPREPLY=($(compgen -W "--limits" -- "$word")); return ;;
    docs) COMPREPLY=($(compgen -d -- "$word")); return ;;
  esac
  if [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "-e -l -i -v -E -j -O --auto --device --sandbox --version --help" -- "$word"))
    return
  fi
  COMPREPLY=($(compgen -f -- "$word"))
  ((COMP_CWORD == 1)) && COMPREPLY+=($(compgen -W "explain tune cache repro minify docs" -- "$word"))
}
complete -o filenames -F _lutra lutra
