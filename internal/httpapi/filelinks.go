package httpapi

import (
	"context"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/caller"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/preview"
)

const (
	fileLinkPrefix = "/v1/f/"
	fileLinkRoute  = "/v1/f/{token}"

	defaultUpload = 1 << 30 // bytes
	maxUpload     = 1 << 40
	maxLinkPath   = 1024 // bytes: an address that is much longer gets through nowhere
	maxNameShown  = 200  // bytes of a name in a Content-Disposition
)

// Pages of all origins may use a link: it is itself all that a request needs,
// and no cookie, no key and no address of the caller's counts.
const (
	fileLinkHeaders = "Content-Type, Range, X-Request-Id"
	fileLinkExposed = "Accept-Ranges, Content-Disposition, Content-Range, Retry-After, X-Request-Id"
)

var fileLinkMethods = []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodOptions} // with GET there is HEAD

// createFileLink makes a link to one file for one direction.
func (s *Server) createFileLink(w http.ResponseWriter, r *http.Request) error {
	var req api.FileLinkRequest
	if err := decode(w, r, &req); err != nil {
		return err
	}
	name, err := absolute("path", req.Path)
	if err != nil {
		return err
	}
	if name == "/" || strings.HasSuffix(req.Path, "/") {
		return fault.InvalidField("path", "path must name a file, but %s is a folder", shown(req.Path))
	}
	if len(name) > maxLinkPath {
		return fault.InvalidField("path", "path is longer than %d bytes, which is the most for a link", maxLinkPath).WithHint("move the file to a shorter one")
	}
	ttl, err := s.linkTTL(req.TTLSeconds)
	if err != nil {
		return err
	}
	who := stateOf(r.Context()).who
	id := r.PathValue("id")
	c := preview.FileClaims{SandboxID: id, Path: name, Owner: who.Owner, Key: who.Prefix, Expires: time.Now().Add(ttl).Unix()}
	method := req.Method
	switch method {
	case "":
		method = api.LinkDownload
	case api.LinkDownload:
	case api.LinkUpload:
		c.Upload, c.MaxBytes = true, defaultUpload
	default:
		return fault.InvalidField("method", "method must be GET, to read the file, or PUT, to write it, but is %s", shown(method))
	}
	if n := req.MaxBytes; n != nil {
		if !c.Upload {
			return fault.InvalidField("max_bytes", "max_bytes is for links that write: method PUT")
		}
		if *n < 1 || *n > maxUpload {
			return fault.InvalidField("max_bytes", "max_bytes must be between 1 and %d, but is %d", int64(maxUpload), *n)
		}
		c.MaxBytes = *n
	}
	if _, err := s.Sandboxes.Ports(r.Context(), owner(r), id); err != nil { // it must be there
		return err
	}
	return ok(w, api.FileLink{
		URL: scheme(r) + "://" + r.Host + fileLinkPrefix + s.Links.SignFile(c), SandboxID: id, Path: name, Method: method,
		MaxBytes: c.MaxBytes, ExpiresAt: c.ExpiresAt(),
	})
}

// visitFile serves a file to whoever has a link to it. It never answers with a
// page: what is in the file is a stranger's, and this is the API's own origin.
func (s *Server) visitFile(w http.ResponseWriter, r *http.Request, token string) {
	st := stateOf(r.Context())
	st.path = fileLinkPrefix + "…" // the token is a secret
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if !slices.Contains(fileLinkMethods, method) {
		s.fail(w, r, errLinkMethod("links are for reading and writing files", "GET, HEAD, PUT, POST, OPTIONS"))
		return
	}
	st.route = method + " " + fileLinkRoute
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Expose-Headers", fileLinkExposed)
	if err := s.refuseForeignHost(r); err != nil {
		s.fail(w, r, err)
		return
	}
	if r.Method == http.MethodOptions { // which tells nothing of the link
		h.Set("Access-Control-Allow-Methods", "GET, HEAD, PUT, POST")
		h.Set("Access-Control-Allow-Headers", fileLinkHeaders)
		h.Set("Access-Control-Max-Age", corsMaxAge)
		w.WriteHeader(http.StatusNoContent)
		return
	}
	c, life, err := s.openFile(r, token)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	ctx := caller.With(r.Context(), caller.Caller{RequestID: st.id, Key: c.Key})
	if life != nil {
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(life, func() { cancel(auth.ErrEnded) })()
	}
	r = r.WithContext(ctx)
	r.SetPathValue("id", c.SandboxID)
	if c.Upload {
		err = s.takeFile(w, r, c)
	} else {
		h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
		err = s.sendFile(w, r, c.Path, attachment(c.Path))
	}
	if err != nil {
		if errors.Is(context.Cause(ctx), auth.ErrEnded) && !errors.Is(err, http.ErrAbortHandler) {
			err = fileLinkFault(preview.ErrExpired)
		}
		s.fail(w, r, err)
	}
}

// openFile checks a link, and that it is for what is asked.
func (s *Server) openFile(r *http.Request, token string) (c preview.FileClaims, life context.Context, err error) {
	if s.Links == nil {
		return c, nil, fileLinkFault(preview.ErrToken)
	}
	if c, err = s.Links.VerifyFile(token); err != nil {
		return c, nil, fileLinkFault(err)
	}
	switch reads := r.Method == http.MethodGet || r.Method == http.MethodHead; {
	case c.Upload && reads:
		return c, nil, errLinkMethod("this link is to upload a file", "PUT, POST, OPTIONS")
	case !c.Upload && !reads:
		return c, nil, errLinkMethod("this link is to download a file", "GET, HEAD, OPTIONS")
	}
	owner, _, err := s.Sandboxes.OwnerOf(r.Context(), c.SandboxID, 0)
	if err != nil && !errors.Is(err, fault.NotFound) {
		return c, nil, err
	}
	life, good := s.Keys.Life(c.Key)
	switch {
	case err != nil || owner == "":
		return c, nil, fault.New(api.CodeNotFound, "the sandbox of this link has ended")
	case owner != c.Owner:
		return c, nil, fileLinkFault(preview.ErrToken)
	case !good:
		return c, nil, fileLinkFault(preview.ErrExpired)
	}
	stateOf(r.Context()).who = auth.Identity{Owner: owner, Prefix: c.Key}
	return c, life, s.visits.take(owner)
}

// errLinkMethod is errMethod without the path, which is a secret.
func errLinkMethod(words, allowed string) error {
	e := fault.New(api.CodeInvalid, "%s", words).WithHint("allowed: %s", allowed)
	return &withStatus{e, http.StatusMethodNotAllowed, "Allow", allowed}
}

func fileLinkFault(err error) error {
	return fault.Wrap(err, api.CodeUnauthenticated, "%s", err.Error()).WithHint("ask whoever sent it for a new one: POST …/fs/link makes it")
}

// takeFile writes what is sent, the body itself or the one file of a form.
func (s *Server) takeFile(w http.ResponseWriter, r *http.Request, c preview.FileClaims) error {
	body := flowing{http.NewResponseController(w), r.Body}
	err := s.takeUpload(w, r, c, body)
	if err != nil {
		drain(body)
	}
	return err
}

func (s *Server) takeUpload(w http.ResponseWriter, r *http.Request, c preview.FileClaims, body io.Reader) error {
	content := body
	switch kind, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); {
	case kind == "multipart/form-data":
		form := multipart.NewReader(body, params["boundary"])
		part, err := nextFile(form)
		if err != nil {
			return err
		}
		content = &onlyFile{form: form, part: part}
	case r.ContentLength > c.MaxBytes:
		return tooLarge(c.MaxBytes)
	}
	return s.onceWithGuest(r, func(ctx context.Context, g *guest.Client) error {
		res, err := g.WriteFile(ctx, c.Path, guest.WriteOptions{}, &limited{content, c.MaxBytes, c.MaxBytes})
		return answer(w, res, err)
	})
}

// limited fails when there is more than there may be.
type limited struct {
	from      io.Reader
	left, max int64
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.from.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return 0, tooLarge(l.max)
	}
	return n, err
}

func tooLarge(most int64) error {
	return fault.New(api.CodeTooLarge, "this link takes files of at most %d bytes", most).
		WithHint("ask whoever sent it for one with a larger max_bytes")
}

// nextFile finds the next file in a form.
func nextFile(form *multipart.Reader) (*multipart.Part, error) {
	for {
		part, err := form.NextPart()
		switch {
		case errors.Is(err, io.EOF):
			return nil, fault.New(api.CodeInvalid, "there is no file in the form").WithHint(`send one: <input type="file" name="file">`)
		case err != nil:
			return nil, fault.Wrap(err, api.CodeInvalid, "the form cannot be read: %v", err)
		case part.FileName() != "":
			return part, nil
		}
	}
}

// onlyFile reads the file of a form, which must be the only one.
type onlyFile struct {
	form *multipart.Reader
	part *multipart.Part
}

func (o *onlyFile) Read(p []byte) (int, error) {
	n, err := o.part.Read(p)
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	for {
		switch part, err := o.form.NextPart(); {
		case errors.Is(err, io.EOF):
			return n, io.EOF
		case err != nil:
			return 0, err
		case part.FileName() != "":
			return 0, fault.New(api.CodeInvalid, "there is more than one file in the form").WithHint("a link is to one file")
		}
	}
}

// attachment is a Content-Disposition with the name of a file, which was given by
// a stranger: without what could pass for another name, or for more than a name.
func attachment(file string) string {
	name := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || strings.ContainsRune(`/\:*?"<>|`, r) {
			return '_'
		}
		return r
	}, strings.ToValidUTF8(path.Base(file), "_"))
	for len(name) > maxNameShown {
		name = strings.ToValidUTF8(name[len(name)-maxNameShown:], "") // the end of it says what kind it is
	}
	return mime.FormatMediaType("attachment", map[string]string{"filename": name})
}
